"""The result of training: a `Fit` for each run, with its status, history and diagnostics."""

import time

import numpy as np

from ..results import Code, Cost, Fit, Status, TrainDiagnostics
from ._task import Progress, Task

_TAIL = 100
"""Number of last steps over which the Stein ratio is averaged."""


def fits_of(task: Task, progress: Progress) -> list[Fit]:
    """The fit of every run, up to its last step or to the step at which it went wrong."""
    seconds = time.perf_counter() - progress.started
    return [_fit_of(task, progress, i, seconds) for i in range(len(progress.troubles))]


def _fit_of(task: Task, progress: Progress, i: int, seconds: float) -> Fit:
    trouble = progress.troubles[i]
    last = progress.step if trouble is None else min(progress.step, trouble.step)
    history, steps = _history_of(progress, i, last), last - progress.first
    cost = Cost(seconds, steps, steps * task.score_evals)
    state = task.pick(progress.state, i)
    status = _status_of(progress, i, int(state.step), history)
    diagnostics = _diagnostics_of(task, progress, i, history)
    return Fit(task.posterior(progress, i), status, False, diagnostics, history, cost, state)


def _history_of(progress: Progress, i: int, last: int) -> dict[str, np.ndarray]:
    names = progress.records[0] if progress.records else ("loss", "stein_ratio")
    history = {
        name: progress.recorded(name)[i, : last - progress.first].astype(float) for name in names
    }
    return {"step": np.arange(progress.first, last), **history}


def _diagnostics_of(
    task: Task, progress: Progress, i: int, history: dict[str, np.ndarray]
) -> TrainDiagnostics:
    tail = history["stein_ratio"][-_TAIL:]
    tail = tail[np.isfinite(tail)]
    ratio = float(np.mean(tail)) if tail.size else float("nan")
    skipped = int(np.sum(~np.isfinite(history["loss"]))) if task.skips_nonfinite else 0
    return TrainDiagnostics(ratio, skipped, progress.not_finite.get(i))


def _status_of(progress: Progress, i: int, step: int, history: dict[str, np.ndarray]) -> Status:
    trouble = progress.troubles[i]
    if trouble is not None:
        return trouble.status(step)
    limit = Code.STEP_LIMIT.doubt(f"ran all {progress.step:,} steps")
    ending = progress.ending or Status.of_doubts("step limit", [limit])
    beta = history.get("inverse_temperature", np.ones(1))[-1:]
    if np.all(beta >= 1):
        return ending
    annealed = f"with the target still annealed at β = {beta[0]:.2g}"
    doubts = (*ending.doubts, Code.STILL_ANNEALED.doubt(annealed))
    return Status(ending.kind, f"{ending.reason}, {annealed}", doubts)
