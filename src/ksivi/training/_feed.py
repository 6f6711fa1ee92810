"""Loads the rows of a chunk of steps from the host, and reads the next ones while it runs."""

from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ..objectives import AbstractObjective
from ..targets import Target

_FED_BYTES = 2**26
"""Bytes of the rows of one chunk. Twice as much is in use: on the device, and being read."""


class Feeder:
    """Loads the rows of each step. They depend only on the key and the step.

    All runs of a batch of keys share the rows.

    **Arguments:**

    - `key`: the key of the run. Each step folds its number into it; the rows use a number that no
        step has.
    """

    def __init__(self, key: PRNGKeyArray, target: Target, objective: AbstractObjective):
        first = key if key.ndim == 0 else key[0]
        self.seed = int(jax.random.bits(jax.random.fold_in(first, 2**32 - 1)))
        assert target.host_rows is not None
        self.source = target.host_rows
        self.rows_per_step = target.density.batch_size * objective.num_minibatches  # type: ignore[attr-defined]
        self._reader = ThreadPoolExecutor(max_workers=1)
        self._ahead: dict[tuple[int, int], Future] = {}

    @property
    def max_steps(self) -> int:
        """Maximum number of steps whose rows may be loaded together."""
        row = sum(leaf[0].nbytes for leaf in jax.tree.leaves(self.source.block(0)))
        return max(2, _FED_BYTES // (row * self.rows_per_step))

    def rows(self, step: int, num_steps: int) -> PyTree:
        """The rows of `num_steps` steps, from `step` on."""
        ready = self._ahead.pop((step, num_steps), None)
        found = self._take(step, num_steps) if ready is None else ready.result()
        after = (step + num_steps, num_steps)
        self._ahead = {after: self._reader.submit(self._take, *after)}
        return jax.tree.map(jnp.asarray, found)

    def _take(self, step: int, num_steps: int) -> PyTree:
        return self.source.take(
            self.seed, step * self.rows_per_step, num_steps * self.rows_per_step
        )
