"""What a run ends in: the fit of each of its members, with its status, history and diagnostics."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..results import Cost, Fit, Status

if TYPE_CHECKING:
    from ._host import Run

_TAIL = 100
"""Steps at the end, of which the Stein ratio is the mean."""


def fit_of(run: "Run", i: int, seconds: float) -> Fit:
    """The i-th member of a run, up to its last step or to the one that went wrong."""
    trouble = run.troubles[i]
    last = run.step if trouble is None else min(run.step, trouble.step)
    history, steps = _history_of(run, i, last), last - run.first
    cost = Cost(seconds, steps, steps * run.problem.objective.score_evals)
    status, diagnostics = _status_of(run, i, history), _diagnostics_of(run, i, history)
    return Fit(run.posterior(i), status, False, diagnostics, history, cost, run.pick(run.state, i))


def _history_of(run: "Run", i: int, last: int) -> dict[str, np.ndarray]:
    empty = np.zeros((run.num_runs, 0))
    records = {name: np.concatenate([empty, *chunks], axis=1)[i] for name, chunks in run.records.items()}
    history = {name: values[: last - run.first].astype(float) for name, values in records.items()}
    return {"step": np.arange(run.first, last), **history}


def _diagnostics_of(run: "Run", i: int, history: dict[str, np.ndarray]) -> dict[str, Any]:
    tail = history["stein_ratio"][-_TAIL:]
    tail = tail[np.isfinite(tail)]
    found: dict[str, Any] = {"stein ratio": float(np.mean(tail)) if tail.size else float("nan")}
    if run.problem.forgiving and (skipped := int(np.sum(~np.isfinite(history["loss"])))):
        found["skipped steps"] = skipped
    if i in run.seen:
        found["not finite"] = run.seen[i]
    return found


def _status_of(run: "Run", i: int, history: dict[str, np.ndarray]) -> Status:
    trouble, ending = run.troubles[i], run.ending
    if trouble is not None:
        return trouble.status(int(run.pick(run.state, i).step))
    assert ending is not None
    beta = history.get("inverse_temperature", np.ones(1))[-1:]
    if np.all(beta >= 1):
        return ending
    return Status(ending.kind, f"{ending.reason}, with the target still annealed at β = {beta[0]:.2g}")
