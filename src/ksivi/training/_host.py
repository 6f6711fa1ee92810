"""The host loop of `train`, `run` and `fit`: it runs chunks of steps and decides what follows.

A `Task` takes the steps. `Progress` is the only thing that changes: one immutable value, replaced
once per chunk. So an interrupt always finds a complete chunk, and a checkpoint is one value on
disk.
"""

import abc
import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from ..results import NotFinite, Posterior, Status
from ._callbacks import Callback, Chunk, stop_requested
from ._chunk_result import ChunkResult, Shape
from ._signals import Terminated
from ._trouble import Trouble, early_ratio, find_trouble

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
    def at(cls, state: PyTree, early_ratio: Array | np.ndarray, rate: Scalar | None = None) -> "Progress":
        """The progress at the start of a call. The state may come from an earlier run."""
        early, step = np.atleast_1d(np.asarray(early_ratio)), int(np.max(np.asarray(state.step)))
        limits, troubles = np.full(len(early), NEVER), (None,) * len(early)
        begun = time.perf_counter()
        return cls(
            step, step, state, rate, state, rate, early, limits, troubles, {}, (), (), {}, begun
        )

    def replace(self, **changes: Any) -> "Progress":
        return dataclasses.replace(self, **changes)

    def at_rate(self, rate: Scalar) -> "Progress":
        """The progress with another learning rate for the next steps. It compiles nothing again."""
        is_first = self.earlier is self.state
        return self.replace(
            rate=rate, earlier_rate=rate if is_first else self.earlier_rate, ending=None
        )

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


class _Begun(NamedTuple):
    """A chunk that the device has started, and when. A chunk starts when the one before is done."""

    at: float
    chunk: ChunkResult


@dataclasses.dataclass(frozen=True)
class Host:
    """Runs a task chunk by chunk.

    **Attributes:**

    - `task`: the task to run.
    - `save`: writes a checkpoint. Its arguments are the progress after and before the chunk; the
        latter is None at the end of a call.
    """

    task: Task
    save: Any = lambda progress, before: None

    def until(
        self,
        progress: Progress,
        num_steps: int,
        chunk_size: int,
        callbacks: Sequence[Callback] = (),
    ) -> Progress:
        """Runs chunks up to `num_steps`.

        It stops early if all runs are in trouble, a callback returns True, or the user presses
        Ctrl-C.
        """
        shape, begun = self.task.chunk_shape(num_steps - progress.first, chunk_size), None
        try:
            while (
                progress.step < num_steps and None in progress.troubles and progress.ending is None
            ):
                before = progress
                progress, seconds, begun = self._chunk(progress, num_steps, shape, begun)
                self.save(progress, before)
                if stop_requested(callbacks, self._report(progress, num_steps, seconds)):
                    progress = _ended(progress, "a callback", num_steps)
        except (KeyboardInterrupt, Terminated) as error:
            progress = _ended(progress, "the user", num_steps)
            self.save(progress, None)
            if isinstance(error, Terminated):
                raise
        return progress

    def _chunk(
        self, progress: Progress, num_steps: int, shape: Shape, begun: _Begun | None
    ) -> tuple[Progress, float, _Begun | None]:
        """Runs one chunk. Returns the progress, the seconds, and the next chunk if started."""
        limits, count = (
            np.minimum(progress.limits, num_steps),
            min(shape[0] * shape[1], num_steps - progress.step),
        )
        begun = begun or self._begin(progress, progress.state, limits, shape)
        begins_next = self.task.runs_ahead and progress.step + count < num_steps
        following = self._begin(progress, begun.chunk.state, limits, shape) if begins_next else None
        records = {
            name: np.atleast_2d(np.asarray(row))[:, :count]
            for name, row in begun.chunk.records.items()
        }
        arrived = time.perf_counter()
        early = np.where(
            np.isnan(progress.early_ratio),
            early_ratio(records["stein_ratio"]),
            progress.early_ratio,
        )
        progress = progress.replace(early_ratio=early)
        found = self._find_trouble(progress, records, np.atleast_1d(np.asarray(begun.chunk.finite)))
        after = (
            self._retraced(progress, found, count, shape)
            if found
            else progress.replace(state=begun.chunk.state)
        )
        kept = (*progress.kept, *self._kept(progress.step, count, begun.chunk.positions))
        after = after.replace(
            step=progress.step + count,
            state=self.task.with_early_ratio(after.state, early),
            earlier=progress.state,
            earlier_rate=progress.rate,
            records=(*progress.records, records),
            kept=kept,
        )
        return (
            after,
            arrived - begun.at,
            None if found or following is None else following._replace(at=arrived),
        )

    def _begin(self, progress: Progress, state: PyTree, limits: np.ndarray, shape: Shape) -> _Begun:
        return _Begun(time.perf_counter(), self.task.advance(state, limits, shape, progress.rate))

    def _kept(
        self, step: int, count: int, positions: Array | None
    ) -> list[Float[np.ndarray, "r t n d"]]:
        """The positions of a chunk that become draws."""
        keeps = self.task.keeps(np.arange(step, step + count))
        if positions is None or not keeps.any():
            return []
        found = np.asarray(positions) if self.task.batched else np.asarray(positions)[None]
        return [found[:, :count][:, keeps]]

    def _find_trouble(
        self, progress: Progress, records: dict, finite: np.ndarray
    ) -> dict[int, Trouble]:
        """What went wrong in this chunk, by run."""
        found = {}
        for i, trouble in enumerate(progress.troubles):
            if trouble is None:
                loss, ratio, early = (
                    records["loss"][i],
                    records["stein_ratio"][i],
                    progress.early_ratio[i],
                )
                skips = self.task.skips_nonfinite
                found[i] = find_trouble(loss, ratio, early, bool(finite[i]), progress.step, skips)
        return {i: trouble for i, trouble in found.items() if trouble is not None}

    def _retraced(
        self, progress: Progress, found: dict[int, Trouble], count: int, shape: Shape
    ) -> Progress:
        """The progress with the last good state of the runs that went wrong.

        Steps are repeatable: running again from one chunk ago gives the state before the trouble.
        """
        limits, troubles = progress.limits.copy(), list(progress.troubles)
        for i, trouble in found.items():
            troubles[i], limits[i] = trouble, max(progress.first, trouble.limit)
        ends = np.minimum(limits, progress.step + count)
        before, until = progress.earlier, np.minimum(ends, progress.step)
        while np.any(
            np.asarray(before.step) < until
        ):  # once, unless the chunks before a checkpoint were shorter
            before = self.task.advance(before, until, shape, progress.earlier_rate).state
        bad = {
            i: trouble.not_finite for i, trouble in found.items() if trouble.not_finite is not None
        }
        not_finite = progress.not_finite | (
            self.task.examine(bad, before, shape, progress.rate) if bad else {}
        )
        state = self.task.advance(before, ends, shape, progress.rate).state
        return progress.replace(
            state=state, limits=limits, troubles=tuple(troubles), not_finite=not_finite
        )

    def _report(self, progress: Progress, num_steps: int, seconds: float) -> Chunk:
        """The argument of the callbacks."""
        losses = progress.records[-1]["loss"]
        alive = [i for i, trouble in enumerate(progress.troubles) if trouble is None]
        loss = float(np.nanmean(losses[alive])) if alive else float("nan")
        speed, since_start = losses.shape[1] / seconds, time.perf_counter() - progress.started

        def posteriors() -> list[Posterior]:
            return [self.task.posterior(progress, i) for i in range(len(progress.troubles))]

        return Chunk(progress.step, num_steps, loss, since_start, speed, posteriors)


def _ended(progress: Progress, by: str, num_steps: int) -> Progress:
    reason = f"stopped by {by} after {progress.step:,} of {num_steps:,} steps"
    return progress.replace(ending=Status("interrupted", reason))
