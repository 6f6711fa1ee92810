"""A task of the host loop: how its steps are taken, and how far its runs are."""

import abc
import dataclasses
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..results import NotFinite, Posterior, Status
from ._chunk_result import ChunkResult, Shape
from ._trouble import Trouble

NEVER = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far the runs of a task are, at the end of a chunk.

    **Attributes:**

    - `first`, `step`: the step at which this call began, and the number of steps taken so far.
    - `state`, `rate`: the state for the next step, and its learning rate.
    - `earlier`, `earlier_rate`: state and rate one chunk ago. After trouble, steps are run again
        from there.
    - `early_ratio`: the Stein ratio of the first steps of each run.
    - `limits`: the step at which each run ends.
    - `troubles`, `not_finite`: what went wrong in each run, and which quantity was not finite.
    - `records`, `kept`: the recorded numbers and the positions that became draws, one part per
        chunk.
    - `memo`: decisions of the caller, which a checkpoint keeps.
    - `started`: the start time, from `time.perf_counter`.
    - `ending`: why the runs ended early, if they did.
    """

    first: int
    step: int
    state: PyTree
    rate: Scalar | None
    earlier: PyTree
    earlier_rate: Scalar | None
    early_ratio: Float[np.ndarray, " r"]
    limits: Int[np.ndarray, " r"]
    troubles: tuple[Trouble | None, ...]
    not_finite: dict[int, NotFinite]
    records: tuple[dict[str, Float[np.ndarray, "r t"]], ...]
    kept: tuple[Float[np.ndarray, "r t n d"], ...]
    memo: dict[str, Any]
    started: float
    ending: Status | None = None

    @classmethod
    def at(
        cls, state: PyTree, early_ratio: Array | np.ndarray, rate: Scalar | None = None
    ) -> "Progress":
        """The progress at the start of a call. The state may come from an earlier run."""
        early, step = np.atleast_1d(np.asarray(early_ratio)), int(np.max(np.asarray(state.step)))
        limits, troubles = np.full(len(early), NEVER), (None,) * len(early)
        now = (state, rate)
        return cls(
            step, step, *now, *now, early, limits, troubles, {}, (), (), {}, time.perf_counter()
        )

    def replace(self, **changes: Any) -> "Progress":
        return dataclasses.replace(self, **changes)

    def at_rate(self, rate: Scalar) -> "Progress":
        """The progress with another learning rate for the next steps. It compiles nothing again."""
        earlier_rate = rate if self.earlier is self.state else self.earlier_rate
        return self.replace(rate=rate, earlier_rate=earlier_rate, ending=None)

    @property
    def can_go_on(self) -> bool:
        """Whether any run is healthy, and nobody has ended them."""
        return None in self.troubles and self.ending is None

    def healthy(self) -> list[int]:
        """The runs that are not in trouble."""
        return [i for i, trouble in enumerate(self.troubles) if trouble is None]

    def in_trouble(self, found: dict[int, Trouble]) -> "Progress":
        """The progress with new troubles, which end their runs at the last good state."""
        limits, troubles = self.limits.copy(), list(self.troubles)
        for i, trouble in found.items():
            troubles[i], limits[i] = trouble, max(self.first, trouble.limit)
        return self.replace(limits=limits, troubles=tuple(troubles))

    def recorded(self, name: str) -> Float[np.ndarray, "r t"]:
        """The numbers that the steps of this call recorded under a name."""
        if not self.records:
            return np.zeros((len(self.troubles), 0))
        return np.concatenate([part[name] for part in self.records], axis=1)


class Task(abc.ABC):
    """The interface between the host loop and the runs: it takes steps and makes posteriors."""

    batched: bool

    @property
    def runs_ahead(self) -> bool:
        """Whether the next chunk starts before the host has looked at the last one."""
        return False

    @property
    def skips_nonfinite(self) -> bool:
        """Whether steps that are not finite are skipped."""
        return False

    @property
    def score_evals(self) -> int:
        """The number of score evaluations per step, if it is fixed."""
        return 0

    @abc.abstractmethod
    def chunk_shape(self, num_steps: int, chunk_size: int) -> Shape:
        """The shape of a chunk of about `chunk_size` steps."""

    @abc.abstractmethod
    def advance(
        self, state: PyTree, limits: Int[np.ndarray, " r"], shape: Shape, rate: Scalar | None
    ) -> ChunkResult:
        """Runs one chunk. No run goes beyond its limit."""

    @abc.abstractmethod
    def posterior(self, progress: Progress, i: int) -> Posterior:
        """The current posterior of run i."""

    def keeps(self, steps: Int[np.ndarray, " t"]) -> Bool[np.ndarray, " t"]:
        """Which steps' positions become draws."""
        return np.zeros(len(steps), bool)

    def with_early_ratio(self, state: PyTree, ratio: Float[np.ndarray, " r"]) -> PyTree:
        """The state with the early Stein ratio, if the state has a field for it."""
        return state

    def examine(
        self, steps: dict[int, int], before: PyTree, shape: Shape, rate: Scalar | None
    ) -> dict[int, NotFinite]:
        """What was not finite in each run, given the step of each and an earlier state."""
        return {}

    def pick(self, tree: PyTree, i: int) -> PyTree:
        """The part of a tree that belongs to run i."""
        return (
            jax.tree.map(lambda a: a[i] if eqx.is_array(a) else a, tree) if self.batched else tree
        )
