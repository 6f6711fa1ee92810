"""What every method returns: a `Fit` with its `Status`, its diagnostics and its `Cost`."""

import dataclasses
import shutil
import textwrap
from typing import Any, Generic, TypeVar

import numpy as np

from .._core.sharding import on_one_device
from ._about import about_run
from ._diagnostics import Diagnostics
from ._posterior import Posterior
from ._status import Status

D = TypeVar("D", bound=Diagnostics)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a run cost: wall-clock seconds (with compilation), steps, and score evaluations."""

    seconds: float
    steps: int
    score_evals: int


@dataclasses.dataclass(frozen=True)
class Fit(Generic[D]):
    """The result of a run.

    **Attributes:**

    - `posterior`: the sampler.
    - `status`: how the run ended: *converged, step limit, diverged, not trusted, interrupted*, and
        why.
    - `trusted`: whether the draws passed the checks. `train` runs no checks, so it is False there.
    - `diagnostics`: a frozen dataclass of numbers. Each kind of method has one in `ksivi.results`:
        `TrainDiagnostics`, `ParticleDiagnostics`, `ChainDiagnostics`, `FitDiagnostics`.
    - `history`: arrays over the steps, with `"step"` and `"loss"` at least.
    - `cost`: `seconds`, `steps`, `score_evals`.
    - `state`: pass it as `resume=` to continue the run.
    - `refined`: None, or draws that were corrected by importance weights or by MCMC.
    """

    posterior: Posterior
    status: Status
    trusted: bool
    diagnostics: D
    history: dict[str, np.ndarray]
    cost: Cost
    state: Any
    refined: Any = None

    def __post_init__(self):
        if isinstance(self.posterior, Posterior):  # for `to_arviz`, which has no fit
            about = about_run(self.status, self.trusted, self.diagnostics)
            known = dataclasses.replace(self.posterior, about=about)
            object.__setattr__(self, "posterior", known)

    def __str__(self) -> str:
        rows = [("status", str(self.status)), ("trusted", "yes" if self.trusted else "no")]
        rows += self.diagnostics.rows()
        cost = self.cost
        evals = f"{cost.score_evals:,} score evaluations"
        rows += [("cost", f"{cost.seconds:.1f} s, {cost.steps:,} steps, {evals}")]
        return _table(rows, shutil.get_terminal_size().columns)


def gathered(fit: Fit) -> Fit:
    """The fit with its arrays on one device, if they were on all devices of a mesh."""
    posterior, state = on_one_device((fit.posterior, fit.state))
    return dataclasses.replace(fit, posterior=posterior, state=state)


def _table(rows: list[tuple[str, str]], columns: int) -> str:
    """Names on the left and values on the right, wrapped so that every line fits."""
    width = 2 + max(len(name) for name, _ in rows)
    lines = []
    for name, value in rows:
        parts = textwrap.wrap(value, max(20, columns - width), break_on_hyphens=False) or [""]
        labels = [name] + [""] * len(parts)
        lines += [f"{label:<{width}}{part}" for label, part in zip(labels, parts, strict=False)]
    return "\n".join(lines)


def raise_if_diverged(fits: list[Fit], throw: bool) -> None:
    """Raises `RuntimeError` for the first run that diverged, if the user asked for it."""
    for fit in fits:
        if throw and fit.status.kind == "diverged":
            raise RuntimeError(str(fit.status))
