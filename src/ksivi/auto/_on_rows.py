"""The verdict on a fit to some rows, by what a pass over all rows says of it."""

import dataclasses
import math

from .._core.wording import apart
from ..results import Code, Doubt, Fit, FitDiagnostics
from ._amended import with_doubt, with_remark

WORST_ERROR = 0.1
"""A larger error of the log density is a doubt, in nats."""


def is_wrong(fit: Fit[FitDiagnostics]) -> bool:
    """Whether the error is too large to trust the fit."""
    return fit.diagnostics.rows_error > WORST_ERROR


def judged(
    fit: Fit[FitDiagnostics], improper: Doubt | None, ended: Doubt | None
) -> Fit[FitDiagnostics]:
    """The fit with what the rows say for it or against it.

    **Arguments:**

    - `improper`: the doubt of the search that the posterior is improper.
    - `ended`: what ended the way to a better fit. It counts if this one is wrong.
    """
    doubts = [*([improper] if improper else []), *_about_modes(fit), *_about_error(fit)]
    if not doubts:
        off = f"the log density is then off by {fit.diagnostics.rows_error:.2g} nats"
        return with_remark(fit, f"checked on {_used(fit)}; {off}")
    for doubt in doubts:
        fit = with_doubt(fit, doubt)
    return fit if ended is None or not is_wrong(fit) else _ended(fit, ended)


def _used(fit: Fit[FitDiagnostics]) -> str:
    known = fit.diagnostics
    return f"{known.num_rows:,} of {known.num_all_rows:,} rows"


def _about_modes(fit: Fit[FitDiagnostics]) -> list[Doubt]:
    number = fit.diagnostics.num_modes
    others = (
        f"only the highest of {number} modes was examined: others may have as much mass, and the rows "
        "are not in memory"
    )
    return [Code.ROWS_MODES.doubt(others)] if number > 1 else []


def _about_error(fit: Fit[FitDiagnostics]) -> list[Doubt]:
    error, used = fit.diagnostics.rows_error, _used(fit)
    if math.isnan(error):
        unknown = f"the draws were checked on {used} only: the error was not measured"
        return [Code.ROWS_NOT_MEASURED.doubt(unknown)]
    if not is_wrong(fit):
        return []
    found, limit = apart(error, WORST_ERROR, "g")
    off = (
        f"the draws were checked on {used}, and the log density is then off by "
        f"{found} nats, at most {limit} nats to be trusted"
    )
    return [Code.ROWS_ERROR.doubt(off)]


def _ended(fit: Fit[FitDiagnostics], doubt: Doubt) -> Fit[FitDiagnostics]:
    """The fit with what ended the way to a better one. After Ctrl-C its status says *interrupted*."""
    fit = with_doubt(fit, doubt)
    if doubt.code != Code.INTERRUPTED.value:
        return fit
    return dataclasses.replace(fit, status=dataclasses.replace(fit.status, kind="interrupted"))
