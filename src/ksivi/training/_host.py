"""The host loop of `train`, `run` and `fit`: it runs chunks of steps and decides what follows.

A `Task` takes the steps. `Progress` is the only thing that changes: one immutable value, replaced
once per chunk. So an interrupt always finds a complete chunk, and a checkpoint is one value on
disk.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, PyTree

from ..results import Code, Status
from ._callbacks import Callback, Chunk, stop_requested
from ._chunk_result import ChunkResult, Shape
from ._signals import Terminated
from ._task import Progress, Task
from ._trouble import Trouble, early_ratio, find_trouble

Records = dict[str, Float[np.ndarray, "r t"]]


class _Begun(NamedTuple):
    """A chunk that the device has started, and when. A chunk starts when the one before is done."""

    at: float
    chunk: ChunkResult


def _save_nothing(progress: Progress, before: Progress | None) -> None:
    """In place of checkpoints."""


@dataclasses.dataclass(frozen=True)
class Host:
    """Runs a task chunk by chunk.

    **Attributes:**

    - `task`: the task to run.
    - `save`: writes a checkpoint. Its arguments are the progress after and before the chunk; the
        latter is None at the end of a call.
    """

    task: Task
    save: Callable[[Progress, Progress | None], None] = _save_nothing

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
            while progress.step < num_steps and progress.can_go_on:
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
        limits = np.minimum(progress.limits, num_steps)
        count = min(shape[0] * shape[1], num_steps - progress.step)
        begun = begun or self._begin(progress, progress.state, limits, shape)
        begins_next = self.task.runs_ahead and progress.step + count < num_steps
        following = self._begin(progress, begun.chunk.state, limits, shape) if begins_next else None
        chunk = begun.chunk
        records = {name: _rows(values)[:, :count] for name, values in chunk.records.items()}
        arrived = time.perf_counter()
        progress = progress.replace(early_ratio=_known_ratio(progress, records))
        found = self._find_trouble(progress, records, np.atleast_1d(np.asarray(chunk.finite)))
        after = progress.replace(state=chunk.state)
        if found:
            after, following = self._retraced(progress, found, count, shape), None
        after = self._taken(progress, after, records, self._kept(progress, count, chunk.positions))
        following = None if following is None else following._replace(at=arrived)
        return after, arrived - begun.at, following

    def _begin(self, progress: Progress, state: PyTree, limits: np.ndarray, shape: Shape) -> _Begun:
        return _Begun(time.perf_counter(), self.task.advance(state, limits, shape, progress.rate))

    def _taken(
        self, before: Progress, after: Progress, records: Records, kept: list[np.ndarray]
    ) -> Progress:
        """The progress after a chunk, with what the chunk recorded and kept."""
        return after.replace(
            step=before.step + records["loss"].shape[1],
            state=self.task.with_early_ratio(after.state, before.early_ratio),
            earlier=before.state,
            earlier_rate=before.rate,
            records=(*before.records, records),
            kept=(*before.kept, *kept),
        )

    def _kept(self, progress: Progress, count: int, positions: Array | None) -> list[np.ndarray]:
        """The positions of a chunk that become draws, (r, t, n, d), if there are any."""
        keeps = self.task.keeps(np.arange(progress.step, progress.step + count))
        if positions is None or not keeps.any():
            return []
        found = np.asarray(positions) if self.task.batched else np.asarray(positions)[None]
        return [found[:, :count][:, keeps]]

    def _find_trouble(
        self, progress: Progress, records: Records, finite: np.ndarray
    ) -> dict[int, Trouble]:
        """What went wrong in this chunk, by run."""
        found, skips = {}, self.task.skips_nonfinite
        for i in progress.healthy():
            loss, ratio = records["loss"][i], records["stein_ratio"][i]
            early, is_finite = progress.early_ratio[i], bool(finite[i])
            found[i] = find_trouble(loss, ratio, early, is_finite, progress.step, skips)
        return {i: trouble for i, trouble in found.items() if trouble is not None}

    def _retraced(
        self, progress: Progress, found: dict[int, Trouble], count: int, shape: Shape
    ) -> Progress:
        """The progress with the last good state of the runs that went wrong.

        Steps are repeatable: running again from one chunk ago gives the state before the trouble.
        """
        progress = progress.in_trouble(found)
        ends = np.minimum(progress.limits, progress.step + count)
        before, until = progress.earlier, np.minimum(ends, progress.step)
        # Once, unless the chunks before a checkpoint were shorter.
        while np.any(np.asarray(before.step) < until):
            before = self.task.advance(before, until, shape, progress.earlier_rate).state
        steps = {i: one.not_finite for i, one in found.items() if one.not_finite is not None}
        seen = self.task.examine(steps, before, shape, progress.rate) if steps else {}
        state = self.task.advance(before, ends, shape, progress.rate).state
        return progress.replace(state=state, not_finite=progress.not_finite | seen)

    def _report(self, progress: Progress, num_steps: int, seconds: float) -> Chunk:
        """The argument of the callbacks."""
        losses, healthy = progress.records[-1]["loss"], progress.healthy()
        loss = float(np.nanmean(losses[healthy])) if healthy else float("nan")
        speed, since_start = losses.shape[1] / seconds, time.perf_counter() - progress.started
        # A callback may keep its chunks: they hold no more than posteriors need.
        shown, runs = progress.replace(earlier=None, records=()), range(len(progress.troubles))
        posteriors = lambda: [self.task.posterior(shown, i) for i in runs]  # noqa: E731
        return Chunk(progress.step, num_steps, loss, since_start, speed, posteriors)


def _rows(values: Array) -> Float[np.ndarray, "r t"]:
    """What the steps recorded, one row per run."""
    return np.atleast_2d(np.asarray(values))


def _known_ratio(progress: Progress, records: Records) -> Float[np.ndarray, " r"]:
    """The early Stein ratio of each run, from its first chunk."""
    is_new = np.isnan(progress.early_ratio)
    return np.where(is_new, early_ratio(records["stein_ratio"]), progress.early_ratio)


def _ended(progress: Progress, by: str, num_steps: int) -> Progress:
    reason = f"stopped by {by} after {progress.step:,} of {num_steps:,} steps"
    ending = Code.INTERRUPTED.doubt(reason)
    return progress.replace(ending=Status.of_doubts("interrupted", [ending]))
