"""`fit` on minibatched targets: a fit to a surrogate with some rows, whose error is measured."""

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._core.mixtures import root_of
from .._core.roots import DenseRoot
from .._core.wording import apart
from ..results import Code, Fit, FitDiagnostics, Posterior
from ..targets import CHUNK, OutOfTime, Passes, Target
from ._measured import LARGE_DIM
from ._peak import Peak, Peaks, centre_at, centre_from_search, peak_from, peaks_from_search
from ._subsample import FEWEST_ROWS, GOOD_ERROR, Sampled, Sampler
from ._verdict import FitTo, of_target, with_doubt, with_remark

_FEW_ROWS, _ROWS_PER_DIM = 4 * FEWEST_ROWS, 100
"""So few rows, or so few for each dimension, are all used: some would not be enough."""
_WORST_ERROR = 0.1
"""A larger error of the log density is a doubt, in nats."""
_NUM_DRAWS, _MOST_FITS = 128, 3
_NUM_MOMENTS = 1_000
"""Draws that give a mean and widths; more where a covariance has more dimensions."""
_LOADED_BYTES = 2**27
"""Rows of the host that take fewer bytes can be loaded, if some rows are not enough."""


class Plan(NamedTuple):
    """What a fit to many rows needs to know of the call.

    **Attributes:**

    - `fit_to`: fits a target as it is, from a posterior or by a search.
    - `show`: shows the name of a stage.
    - `began`, `budget`: when the fit began, by `time.perf_counter`, and the seconds that it has.
    """

    init: Posterior | None
    num_starts: int
    fit_to: FitTo
    show: Callable[[str], None]
    began: float
    budget: float

    @property
    def deadline(self) -> float:
        return self.began + self.budget


def uses_some_rows(target: Target) -> bool:
    """Whether the target's rows are too many to use all of them, and the user allows some."""
    if not target.is_minibatched:
        return False
    return target.host_rows is not None or (target.density.num_rows or 0) > _few_rows(target)


def could_use_some_rows(target: Target) -> bool:
    """Whether minibatches might make a fit quicker. Rows may be hidden in a log density."""
    num_rows = target.density.num_rows
    return num_rows is None or num_rows > _few_rows(target)


def fit_to_rows(rng: np.random.Generator, target: Target, plan: Plan) -> Fit[FitDiagnostics]:
    """Fits a surrogate with some rows, and measures its error by a pass over all rows.

    All rows are used instead if there are few, or if some are not enough and all are in memory.
    """
    try:
        fit = _fit_to_rows(rng, target, plan)
    except OutOfTime:
        raise RuntimeError(
            f"budget_s = {plan.budget:g} s ended during the search on some rows, which also passes over "
            f"all {target.density.num_rows:,} rows: give a larger budget_s, or fewer rows"
        ) from None
    cost = dataclasses.replace(fit.cost, seconds=time.perf_counter() - plan.began)
    return dataclasses.replace(fit, cost=cost)


def _fit_to_rows(rng: np.random.Generator, target: Target, plan: Plan) -> Fit[FitDiagnostics]:
    passes = Passes(target.density, plan.deadline)
    whole = _whole(target)
    if whole is not None and passes.num_rows <= _few_rows(target):
        return plan.fit_to(whole, plan.init)
    sampler = Sampler(rng, target, passes)
    plan.show(f"search on {FEWEST_ROWS:,} of {passes.num_rows:,} rows")
    peaks = _peaks(rng, sampler, plan)
    plan.show("choice of rows")
    found = sampler.around(peaks.best)
    if whole is not None and (peaks.num_rivals or found.error > _WORST_ERROR):
        return plan.fit_to(whole, plan.init)
    fit, found = _fitted(rng, sampler, peaks, found, plan)
    if whole is not None and found.error > _WORST_ERROR:
        return plan.fit_to(whole, fit.posterior)
    return fit


def _few_rows(target: Target) -> int:
    return max(_FEW_ROWS, _ROWS_PER_DIM * target.dim)


def _peaks(rng: np.random.Generator, sampler: Sampler, plan: Plan) -> Peaks:
    passes, beta = sampler.passes, sampler.beta
    is_large = sampler.target.dim > LARGE_DIM
    if plan.init is not None:
        draws = plan.init.host_draws(rng, _NUM_MOMENTS)
        if is_large:
            return Peaks(centre_at(passes, draws.mean(axis=0), draws.std(axis=0), beta), 0, 0)
        return Peaks(peak_from(passes, draws.mean(axis=0), beta), 0, 0)
    some = sampler.evaluator(sampler.plain())
    if is_large:
        return centre_from_search(rng, some, passes, beta)
    return peaks_from_search(rng, some, passes, beta, plan.num_starts)


def _fitted(
    rng: np.random.Generator, sampler: Sampler, peaks: Peaks, found: Sampled, plan: Plan
) -> tuple[Fit[FitDiagnostics], Sampled]:
    """Fits surrogates, each around the answer before, until the error at the answer is small."""
    peak, start = peaks.best, plan.init or sampler.start(peaks.best, found)
    for left in range(_MOST_FITS, 0, -1):
        fit = plan.fit_to(found.target, start)
        if fit.status.kind == "interrupted":
            return of_target(fit, sampler.target), found
        plan.show(f"pass over all {sampler.passes.num_rows:,} rows")
        draws = fit.posterior.host_draws(rng, _NUM_DRAWS)
        offset, error = _measured(sampler, found, draws, peak)
        found = dataclasses.replace(found, error=error)
        moments = fit.posterior.host_draws(rng, max(_NUM_MOMENTS, 4 * sampler.target.dim))
        better = _better(sampler, found, moments) if left > 1 and error > GOOD_ERROR else None
        if better is None:
            break
        (peak, found), start = better, fit.posterior
    noted = _noted(of_target(fit, sampler.target), sampler, peaks, found, offset)
    return _judged(noted, peaks, found, sampler.passes.num_rows), found


def _measured(
    sampler: Sampler, found: Sampled, draws: Float[np.ndarray, "n d"], peak: Peak
) -> tuple[float, float]:
    """The mean and the standard deviation of f − f̃ over draws; NaN if there is no time for it."""
    try:
        return sampler.offset(found.target, draws, peak.point)
    except (OutOfTime, KeyboardInterrupt):  # the answer is there already
        return math.nan, math.nan


def _better(
    sampler: Sampler, found: Sampled, draws: Float[np.ndarray, "n d"]
) -> tuple[Peak, Sampled] | None:
    """A surrogate with a smaller error, around the mean of draws; None if there is none."""
    try:
        peak = _recentred(sampler, draws)
        better = sampler.around(peak, found)
    except (OutOfTime, KeyboardInterrupt):
        return None
    return (peak, better) if better.error < found.error else None


def _recentred(sampler: Sampler, draws: Float[np.ndarray, "n d"]) -> Peak:
    """The Gaussian with the mean and the covariance of draws."""
    peak = centre_at(sampler.passes, draws.mean(axis=0), draws.std(axis=0), sampler.beta)
    if peak.hessian is None:
        return peak
    return dataclasses.replace(peak, root=DenseRoot(root_of(draws)))


def _noted(
    fit: Fit[FitDiagnostics], sampler: Sampler, peaks: Peaks, found: Sampled, offset: float
) -> Fit[FitDiagnostics]:
    """The fit with what is known of its rows. A surrogate's evidence is relative to a point."""
    known = fit.diagnostics
    diagnostics = dataclasses.replace(
        known,
        elbo=known.elbo + offset,
        log_evidence=known.log_evidence + offset,
        num_rows=found.num_rows,
        num_all_rows=sampler.passes.num_rows,
        rows_error=found.error,
        num_modes=1 + peaks.num_rivals,
        num_paths=peaks.num_paths,
    )
    return dataclasses.replace(fit, diagnostics=diagnostics)


def _judged(
    fit: Fit[FitDiagnostics], peaks: Peaks, found: Sampled, num_rows: int
) -> Fit[FitDiagnostics]:
    """The fit with what the rows say for it or against it."""
    used = f"{found.num_rows:,} of {num_rows:,} rows"
    doubts = []
    if peaks.improper is not None:
        doubts.append(peaks.improper)
    if peaks.num_rivals:
        others = (
            f"only the highest of {1 + peaks.num_rivals} modes was examined: others may have as much "
            "mass, and the rows are not in memory"
        )
        doubts.append(Code.ROWS_MODES.doubt(others))
    if math.isnan(found.error):
        unknown = f"the draws were checked on {used} only: the error was not measured"
        doubts.append(Code.ROWS_NOT_MEASURED.doubt(unknown))
    elif found.error > _WORST_ERROR:
        error, limit = apart(found.error, _WORST_ERROR, "g")
        off = (
            f"the draws were checked on {used}, and the log density is then off by "
            f"{error} nats, at most {limit} nats to be trusted"
        )
        doubts.append(Code.ROWS_ERROR.doubt(off))
    for doubt in doubts:
        fit = with_doubt(fit, doubt)
    remark = f"checked on {used}; the log density is then off by {found.error:.2g} nats"
    return fit if doubts else with_remark(fit, remark)


def _whole(target: Target) -> Target | None:
    """The same target with all rows in memory, if they are there or are few enough to load.

    A chunk of rows is in memory anyway.
    """
    is_one_chunk = (target.density.num_rows or 0) <= CHUNK
    density = target.density.loaded(sys.maxsize if is_one_chunk else _LOADED_BYTES)
    return None if density is None else eqx.tree_at(lambda t: t.density, target, density)
