"""What every method returns: a `Fit` with its `Status`, its diagnostics and its `Cost`."""

import dataclasses
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from .._core.sharding import on_one_device
from ._about import about_run
from ._advice import about_refined, next_steps
from ._cost import Cost
from ._diagnostics import Diagnostics, FitDiagnostics
from ._posterior import Posterior
from ._status import Status
from ._table import Table
from ._verdicts import explained, table_of, trusted_for

D = TypeVar("D", bound=Diagnostics)

_MOST_PRINTED = 20
"""`print(fit)` shows so many numbers; `fit.table()` has all."""


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
    - `refined`: None, or draws that were corrected by importance weights or by MCMC. `status`,
        `trusted` and `table()` are about `posterior`; corrected draws have their own, such as
        `fit.refined.trusted`.
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
            cost = {"num_steps": self.cost.steps, "sampling_time": self.cost.seconds}
            about = about_run(self.status, self.trusted, self.diagnostics, **cost)
            known = dataclasses.replace(self.posterior, about=about)
            object.__setattr__(self, "posterior", known)

    def table(self) -> Table:
        """A row for each number of the model: mean, sd, quantiles, and how far they could be off.

        The bounds of a `ksivi.fit` come from its checks. Chains of HMC start from draws of the
        answer, and importance weights are used where they are reliable. Chains move draws towards
        the target, so the error is usually at least as large as what they change. Bounds are lowered
        for the number of parameters. They fail where chains overshoot, or leave a narrow place
        slowly.
        `train` and `run` check no single number: their bounds are "not examined".

        **Returns:** a `ksivi.results.Table`.

        ```python
        print(fit.table())
        fit.table().to_dict()
        ```

        Reference: Wang, Kasprzak and Huggins, A targeted accuracy diagnostic for variational
        approximations, AISTATS 2023.
        """
        return table_of(self.posterior, self.status, self.trusted, self.diagnostics)

    def trusted_for(self, names: str | Iterable[str]) -> bool:
        """Whether the checks found nothing against these parameters.

        It can be True in a fit that is not trusted because of other parameters. Some doubts are
        about all parameters, such as a missed mode; it is False then. Others are about how
        coordinates depend on each other: a number that is one coordinate can be trusted then, but
        not two of them, nor an element of a simplex.

        **Arguments:**

        - `names`: one name or several, such as `"tau"`, `"theta[2]"`, or `"theta"` for all elements.

        ```python
        fit.trusted_for("x[0]")
        ```
        """
        return trusted_for(self.posterior, self.status, self.trusted, self.diagnostics, names)

    def explain(self) -> str:
        """For each doubt: what was found, which parameters it is about, and the next step.

        ```python
        print(fit.explain())
        ```
        """
        return explained(self.posterior, self.status, self.diagnostics)

    def __str__(self) -> str:
        of = "" if self.refined is None else " (the draws before the refinement)"
        rows = [("status", str(self.status)), ("trusted", f"{'yes' if self.trusted else 'no'}{of}")]
        rows += self._next_steps()
        rows += self.diagnostics.rows()
        cost = self.cost
        evals = f"{cost.score_evals:,} score evaluations"
        rows += [("cost", f"{cost.seconds:.1f} s, {cost.steps:,} steps, {evals}")]
        columns = shutil.get_terminal_size().columns
        return "\n".join([_table(rows, columns), *self._parameters(columns)])

    def _next_steps(self) -> list[tuple[str, str]]:
        """What to do about each doubt. A trusted fit needs nothing."""
        found = [] if self.trusted else next_steps(self.status, self.diagnostics)
        steps = [f"[{', '.join(step.codes)}] {step.text}" for step in found if step.text]
        steps = [about_refined(self.diagnostics), *steps] if steps else []
        shown = [step.replace("`", "") for step in steps if step]
        return [("what now" if i == 0 else "", step) for i, step in enumerate(shown)]

    def _parameters(self, columns: int) -> list[str]:
        """The table of what was checked, if it is short."""
        found = self.diagnostics
        checked = found.parameters if isinstance(found, FitDiagnostics) else None
        if checked is None or len(checked.names) > _MOST_PRINTED:
            return []
        of = "These are the draws before the refinement; fit.refined.table() is about the others."
        lines = [] if self.refined is None else textwrap.wrap(of, columns)
        return ["", self.table().text(columns), *lines]


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
            steps = " ".join(one.text for one in next_steps(fit.status, fit.diagnostics))
            raise RuntimeError(f"{fit.status}. {steps}".replace("`", "").strip())
