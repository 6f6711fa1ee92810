"""An answer of `fit`, and the verdict on it: its status in words, and whether to trust it."""

import dataclasses
import time
from collections.abc import Callable
from typing import Literal

import numpy as np

from ..families import WarpedGaussian
from ..results import Code, Cost, Doubt, Fit, FitDiagnostics, ParameterChecks, Posterior, Status
from ..targets import Evaluator, Target
from ._doubts import Findings
from ._parameters import checked_parameters
from ._start import Start
from ._stopping import Ending

FitTo = Callable[[Target, Posterior | None], Fit[FitDiagnostics]]
"""Fits a target, by a search or from an earlier posterior."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """A posterior and what the checks found of it.

    **Attributes:**

    - `name`: what the posterior is, in words.
    - `findings`: None if the user stopped before the checks were done.
    - `trained`, `ending`: the fit of the trained sampler, and what ended its training.
    """

    posterior: Posterior
    name: str
    findings: Findings | None
    trained: Fit | None = None
    ending: Ending | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing speaks against it, or nothing better can be found."""
        findings = self.findings
        if findings is None or findings.improper is not None:
            return True
        return not findings.doubts and (findings.is_close or self.trained is not None)


def cost_of(answer: Answer, evaluate: Evaluator, began: float) -> Cost:
    """What an answer has cost since `began`, by `time.perf_counter`."""
    trained = Cost(0.0, 0, 0) if answer.trained is None else answer.trained.cost
    seconds = time.perf_counter() - began
    return Cost(seconds, trained.steps, evaluate.count + trained.score_evals)


def conclude(
    answer: Answer, start: Start, cost: Cost, budget: float, given: tuple[str, ...] = ()
) -> Fit[FitDiagnostics]:
    """The answer as a fit. It is trusted if there are no doubts; the status lists them."""
    trained = answer.trained
    fit: Fit = Fit(
        posterior=answer.posterior,
        status=Status("converged", ""),
        trusted=False,
        diagnostics=FitDiagnostics(
            training=None if trained is None else trained.diagnostics, given=given
        ),
        history=_no_steps() if trained is None else trained.history,
        cost=cost,
        state=None if trained is None else trained.state,
    )
    if answer.findings is None:
        return dataclasses.replace(fit, status=Status.of_doubts("interrupted", [_stopped(cost)]))
    diagnostics = start.noted(answer.findings.diagnostics)
    diagnostics = dataclasses.replace(
        diagnostics,
        training=fit.diagnostics.training,
        answer=answer.name,
        num_steps=cost.steps,
        given=given,
        parameters=_parameters(answer.posterior, answer.findings),
    )
    doubts = _doubts(answer)
    status = _not_trusted(answer, doubts, cost, budget) or _good(answer, diagnostics, cost, budget)
    return dataclasses.replace(fit, status=status, trusted=not doubts, diagnostics=diagnostics)


def _parameters(posterior: Posterior, found: Findings) -> ParameterChecks | None:
    """What is known of each number; None if the draws were not checked."""
    if found.draws is None or found.moved is None:
        return None
    weighed = found.weighed if found.is_light else None
    return checked_parameters(posterior, found.draws, found.moved, weighed, found.has_settled)


def ended_by_budget(answer: Answer, budget: float, is_large: bool) -> Answer:
    """The answer, with a doubt if a better one would have been tried: not after a large one."""
    findings = answer.findings
    if findings is None or answer.is_final or (is_large and findings.moved is not None):
        return answer
    doubts = [*findings.doubts, late(budget)]
    return dataclasses.replace(answer, findings=dataclasses.replace(findings, doubts=doubts))


def late(budget: float) -> Doubt:
    """The doubt about an answer that is not good enough, and the last that there was time for."""
    return Code.BUDGET.doubt(f"budget_s = {budget:g} s ended before a better answer was tried")


def _no_steps() -> dict[str, np.ndarray]:
    return {"step": np.zeros(0, int), "loss": np.zeros(0)}


def _stopped(cost: Cost) -> Doubt:
    after = f" after {cost.steps:,} training steps" if cost.steps else ""
    return Code.INTERRUPTED.doubt(f"stopped by the user{after}; the draws were not checked")


def _doubts(answer: Answer) -> list[Doubt]:
    assert answer.findings is not None
    doubts, trained = list(answer.findings.doubts), answer.trained
    if trained is not None and trained.status.kind == "diverged":
        doubts.insert(0, Code.DIVERGED.doubt(f"training diverged: {trained.status.reason}"))
    return doubts


def _not_trusted(answer: Answer, doubts: list[Doubt], cost: Cost, budget: float) -> Status | None:
    if not doubts:
        return None
    return Status.of_doubts("not trusted", [*doubts, *_endings(answer, cost, budget)])


def _good(answer: Answer, diagnostics: FitDiagnostics, cost: Cost, budget: float) -> Status:
    looked = f"; {diagnostics.modes}" if diagnostics.num_paths else ""
    if isinstance(answer.posterior.family, WarpedGaussian):
        looked += "; not examined: further modes, the joint shape beyond correlations"
    passed = "; the draws passed all checks, and the checks decide"
    reason = _ending(answer, cost, budget) + (passed if answer.ending == "steps" else "")
    is_settled = answer.ending in (None, "settled")
    kind: Literal["converged", "step limit"] = "converged" if is_settled else "step limit"
    return Status(kind, reason + looked, _endings(answer, cost, budget))


def _endings(answer: Answer, cost: Cost, budget: float) -> tuple[Doubt, ...]:
    """An ending that says nothing against the draws: more training was possible."""
    code = {"steps": Code.NOT_SETTLED, "time": Code.TIME_LIMIT}.get(answer.ending or "")
    return () if code is None else (code.doubt(_ending(answer, cost, budget)),)


def _ending(answer: Answer, cost: Cost, budget: float) -> str:
    if answer.ending is None:
        return f"{answer.name} passed all checks"
    steps = f"{cost.steps:,} steps"
    return {
        "settled": f"the bound settled after {steps}",
        "steps": f"ran {steps}; the bound may not have settled",
        "time": f"ran {steps}, as many as {budget:g} s allow on this machine; "
        "the result differs on other machines",
    }[answer.ending]
