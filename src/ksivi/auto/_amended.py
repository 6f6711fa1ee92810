"""Fits with what is known besides their checks: one more doubt, a remark, or the target they are of."""

import dataclasses

from ..results import Code, Doubt, Fit, FitDiagnostics
from ..targets import Target

_STAY = {
    *(Code.MISSED_MODE.value, Code.SECOND_MODE.value, Code.ROWS_MODES.value, Code.IMPROPER.value),
    *(Code.RUNS_DIFFER.value, Code.RUN_NOT_EXAMINED.value),
}
"""Doubts that a fit from an earlier one cannot remove: it makes neither a search nor other runs."""


def with_doubt(fit: Fit[FitDiagnostics], doubt: Doubt) -> Fit[FitDiagnostics]:
    """The fit with one more reason not to trust it."""
    status, is_doubted = fit.status, fit.status.kind == "not trusted"
    reason = f"{status.reason}; {doubt}" if is_doubted else str(doubt)
    new = dataclasses.replace(
        status, kind="not trusted", reason=reason, doubts=(*status.doubts, doubt)
    )
    fit = dataclasses.replace(fit, status=new, trusted=False)
    if fit.refined is None:
        return fit
    refined = fit.refined.with_doubts([doubt])  # corrected by the same log density
    known = dataclasses.replace(fit.diagnostics, refined=refined.in_numbers())
    return dataclasses.replace(fit, refined=refined, diagnostics=known)


def with_doubts_of(fit: Fit[FitDiagnostics], earlier: Fit) -> Fit[FitDiagnostics]:
    """The fit with what an earlier fit to its target found by a search or by independent runs.

    A fit that starts from it has neither.
    """
    if fit.status.kind == "interrupted":
        return fit
    for doubt in earlier.status.doubts:
        is_known = doubt.code in fit.status.codes
        fit = fit if is_known or doubt.code not in _STAY else with_doubt(fit, doubt)
    return fit


def with_ending(fit: Fit[FitDiagnostics], ending: Doubt) -> Fit[FitDiagnostics]:
    """The fit with an ending, which says nothing against its draws."""
    doubts = (*fit.status.doubts, ending)
    fit = dataclasses.replace(fit, status=dataclasses.replace(fit.status, doubts=doubts))
    return with_remark(fit, str(ending))


def without_ending(fit: Fit[FitDiagnostics], code: Code) -> Fit[FitDiagnostics]:
    """The fit without what `with_ending` gave it."""
    reason, left = fit.status.reason, []
    for one in fit.status.doubts:
        if one.code == code.value:
            reason = reason.replace(f"; {one}", "")
        else:
            left.append(one)
    status = dataclasses.replace(fit.status, reason=reason, doubts=tuple(left))
    return dataclasses.replace(fit, status=status)


def with_remark(fit: Fit[FitDiagnostics], remark: str) -> Fit[FitDiagnostics]:
    """The fit with a remark at the end of its status."""
    status = dataclasses.replace(fit.status, reason=f"{fit.status.reason}; {remark}")
    return dataclasses.replace(fit, status=status)


def of_target(fit: Fit[FitDiagnostics], target: Target) -> Fit[FitDiagnostics]:
    """A fit to what stood for the target, such as a surrogate, as a fit to the target itself."""
    of = lambda posterior: dataclasses.replace(posterior, target=target)  # noqa: E731
    refined = fit.refined
    if refined is not None:
        refined = dataclasses.replace(refined, posterior=of(refined.posterior))
    return dataclasses.replace(fit, posterior=of(fit.posterior), refined=refined)
