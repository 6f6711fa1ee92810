"""Corrected draws, and what can be asked of them."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from ..results import (
    Doubt,
    FitDiagnostics,
    Posterior,
    RefinedDraws,
    Status,
    Table,
    about_run,
    explained,
    table_of,
    trusted_for,
)

Refinement = Literal["hmc", "importance"]


@dataclasses.dataclass(frozen=True)
class Refined:
    """Corrected draws, and the verdict on them. That of the fit is about its own draws.

    **Attributes:**

    - `by`: the method that corrected them.
    - `posterior`: a `Posterior` of these stored draws.
    - `effective`: their effective sample size. It is smaller than their number if they were
        resampled by weights.
    - `num_transitions`: the transitions of each chain; 0 if they were resampled.
    - `status`, `trusted`: what new chains, which start at these draws, and the importance weights
        say of them. Doubts that no correction removes, such as an improper posterior, stay.
    - `diagnostics`: what the table is made of.
    - `refine`: the argument of `fit` that asked for them.
    - `made`: the diagnostics of the fit. `explain` leaves out what was done for it already.
    """

    by: str
    posterior: Posterior
    effective: float
    num_transitions: int
    status: Status
    trusted: bool
    diagnostics: FitDiagnostics
    refine: Refinement
    made: FitDiagnostics = dataclasses.field(default_factory=FitDiagnostics, repr=False)

    def __post_init__(self):
        known = {"effective_sample_size": self.effective, "refine": self.refine}
        about = about_run(self.status, self.trusted, self.diagnostics, **known)  # for `to_arviz`
        object.__setattr__(self, "posterior", dataclasses.replace(self.posterior, about=about))

    def table(self) -> Table:
        """A row for each number of the model, as `Fit.table`, for the corrected draws."""
        return table_of(self.posterior, self.status, self.trusted, self.diagnostics)

    def trusted_for(self, names: str | Iterable[str]) -> bool:
        """Whether the checks found nothing against these parameters, as `Fit.trusted_for`."""
        return trusted_for(self.posterior, self.status, self.trusted, self.diagnostics, names)

    def explain(self) -> str:
        """For each doubt about the corrected draws: what was found, and the next step.

        ```python
        fit = ksivi.fit(jax.random.key(0), target, refine="hmc")
        print(fit.refined.explain())
        ```
        """
        # Draws that are not trusted leave out what corrected them. Others need no advice.
        made = dataclasses.replace(self.made, refined=None if self.trusted else self.in_numbers())
        said = explained(self.posterior, self.status, made)
        return said.replace("fit.table()", "fit.refined.table()")

    def in_numbers(self) -> RefinedDraws:
        number = len(self.posterior.family.points)  # type: ignore[union-attr]  # stored draws
        about = self.effective, self.num_transitions, self.trusted, str(self.status)
        return RefinedDraws(self.by, number, *about, self.refine)

    def with_doubts(self, doubts: Sequence[Doubt]) -> "Refined":
        """The same draws with further reasons not to trust them."""
        known = () if self.trusted else self.status.doubts
        status = Status.of_doubts("not trusted", [*known, *doubts])
        return dataclasses.replace(self, status=status, trusted=False)
