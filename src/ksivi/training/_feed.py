"""Rows from the host for a chunk of steps at a time, the next chunk's read while this one runs."""

from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ..objectives import AbstractObjective
from ..targets import Target

_FED_BYTES = 2**26
"""Of the rows of one chunk: so much is on the device, and as much again is being read."""


class Feeder:
    """The rows of each step, which depend on the key and the step alone; runs of a batch of keys share them.

    **Arguments:**

    - `key`: that of the steps, which fold their number into it; that of the rows has a number which no step has.
    """

    def __init__(self, key: PRNGKeyArray, target: Target, objective: AbstractObjective):
        first = key if key.ndim == 0 else key[0]
        self.seed = int(jax.random.bits(jax.random.fold_in(first, 2**32 - 1)))
        self.source = target.host_rows
        self.rows_a_step = target.density.batch_size * objective.num_minibatches  # type: ignore[attr-defined]
        self._reader = ThreadPoolExecutor(max_workers=1)
        self._ahead: dict[tuple[int, int], Future] = {}

    @property
    def most_steps(self) -> int:
        """Steps whose rows may be at hand at once."""
        row = sum(leaf[0].nbytes for leaf in jax.tree.leaves(self.source.block(0)))
        return max(2, _FED_BYTES // (row * self.rows_a_step))

    def rows(self, step: int, num_steps: int) -> PyTree:
        """The rows of so many steps from this one on."""
        ready = self._ahead.pop((step, num_steps), None)
        found = self._take(step, num_steps) if ready is None else ready.result()
        after = (step + num_steps, num_steps)
        self._ahead = {after: self._reader.submit(self._take, *after)}
        return jax.tree.map(jnp.asarray, found)

    def _take(self, step: int, num_steps: int) -> PyTree:
        return self.source.take(self.seed, step * self.rows_a_step, num_steps * self.rows_a_step)
