"""`fit` on minibatched targets: a fit to a surrogate with some rows, whose error is measured."""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import numpy as np

from .._core.mixtures import root_of
from .._core.roots import DenseRoot
from ..results import Code, Cost, Fit, FitDiagnostics, Posterior
from ..targets import CHUNK, OutOfTime, Passes, Target
from ._amended import of_target
from ._measured import LARGE_DIM
from ._on_rows import WORST_ERROR, is_wrong, judged
from ._peak import Peak, Peaks, centre_at, centre_from_search, peak_from, peaks_from_search
from ._price import EndedInSearch
from ._subsample import FEWEST_ROWS, GOOD_ERROR, Sampled, Sampler
from ._verdict import FitTo, late

_FEW_ROWS, _ROWS_PER_DIM = 4 * FEWEST_ROWS, 100
"""So few rows, or so few for each dimension, are all used: some would not be enough."""
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
    costs: list[Cost] = []

    def fit_to(other: Target, init: Posterior | None) -> Fit[FitDiagnostics]:
        fit = plan.fit_to(other, init)
        costs.append(fit.cost)
        return fit

    try:
        fit = _fit_to_rows(rng, target, plan._replace(fit_to=fit_to))
    except OutOfTime:
        raise RuntimeError(
            f"budget_s = {plan.budget:g} s ended during the search on some rows, which also passes over "
            f"all {target.density.num_rows:,} rows: give a larger budget_s, or fewer rows"
        ) from None
    seconds = time.perf_counter() - plan.began
    return dataclasses.replace(fit, cost=Cost.of_all(costs, seconds))


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
    if whole is not None and (peaks.num_rivals or found.error > WORST_ERROR):
        return plan.fit_to(whole, plan.init)
    return _fitted(sampler, peaks, found, whole, plan)


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
    sampler: Sampler, peaks: Peaks, found: Sampled, whole: Target | None, plan: Plan
) -> Fit[FitDiagnostics]:
    """Fits surrogates, each around the answer before, and then all rows, until the error is small.

    Once there is an answer, the end of the time and Ctrl-C leave the last one that was checked.
    """
    first = plan.fit_to(found.target, plan.init or sampler.start(peaks.best, found))
    if first.status.kind == "interrupted":
        return of_target(first, sampler.target)
    offset, error = _measured(first, sampler, peaks.best, found, plan)
    fit, ended = _noted(first, sampler, peaks, found, offset, error), None
    try:
        for better in _better(fit, sampler, peaks, found, plan):
            fit = better
        if whole is not None and is_wrong(fit):
            return _finished(plan.fit_to(whole, fit.posterior), plan)
    except (OutOfTime, EndedInSearch):
        ended = late(plan.budget)
    except KeyboardInterrupt:
        ended = Code.INTERRUPTED.doubt("stopped by the user before more rows were used")
    return judged(fit, peaks.improper, ended)


def _measured(
    fit: Fit[FitDiagnostics], sampler: Sampler, peak: Peak, found: Sampled, plan: Plan
) -> tuple[float, float]:
    """The mean and the standard deviation of f − f̃ over draws; NaN if there is no time for it."""
    try:
        return _offset(fit, sampler, peak, found, plan)
    except (OutOfTime, KeyboardInterrupt):  # the answer is there already
        return math.nan, math.nan


def _offset(
    fit: Fit[FitDiagnostics], sampler: Sampler, peak: Peak, found: Sampled, plan: Plan
) -> tuple[float, float]:
    plan.show(f"pass over all {sampler.passes.num_rows:,} rows")
    draws = fit.posterior.host_draws(sampler.rng, _NUM_DRAWS)
    return sampler.offset(found.target, draws, peak.point)


def _better(
    fit: Fit[FitDiagnostics], sampler: Sampler, peaks: Peaks, found: Sampled, plan: Plan
) -> Iterator[Fit[FitDiagnostics]]:
    """Fits to more rows, each around the mean of the draws of the one before."""
    for _ in range(_MOST_FITS - 1):
        error = fit.diagnostics.rows_error
        if not error > GOOD_ERROR:
            return
        peak = _recentred(sampler, fit.posterior)
        found = sampler.around(peak, dataclasses.replace(found, error=error))
        if not found.error < error:
            return
        fit = _finished(plan.fit_to(found.target, fit.posterior), plan)
        fit = _noted(fit, sampler, peaks, found, *_offset(fit, sampler, peak, found, plan))
        yield fit


def _finished(fit: Fit[FitDiagnostics], plan: Plan) -> Fit[FitDiagnostics]:
    """The fit, if its checks came to their end. Otherwise what ended them is raised once more."""
    if fit.status.kind == "interrupted":
        raise KeyboardInterrupt
    if fit.diagnostics.parameters is None and time.perf_counter() > plan.deadline:
        raise OutOfTime
    return fit


def _recentred(sampler: Sampler, posterior: Posterior) -> Peak:
    """The Gaussian with the mean and the covariance of draws."""
    draws = posterior.host_draws(sampler.rng, max(_NUM_MOMENTS, 4 * sampler.target.dim))
    peak = centre_at(sampler.passes, draws.mean(axis=0), draws.std(axis=0), sampler.beta)
    if peak.hessian is None:
        return peak
    return dataclasses.replace(peak, root=DenseRoot(root_of(draws)))


def _noted(
    fit: Fit[FitDiagnostics],
    sampler: Sampler,
    peaks: Peaks,
    found: Sampled,
    offset: float,
    error: float,
) -> Fit[FitDiagnostics]:
    """The fit to a surrogate as one to the target, with what is known of its rows.

    A surrogate's evidence is relative to a point.
    """
    known = fit.diagnostics
    diagnostics = dataclasses.replace(
        known,
        elbo=known.elbo + offset,
        log_evidence=known.log_evidence + offset,
        num_rows=found.num_rows,
        num_all_rows=sampler.passes.num_rows,
        rows_error=error,
        num_modes=1 + peaks.num_rivals,
        num_paths=peaks.num_paths,
    )
    return dataclasses.replace(of_target(fit, sampler.target), diagnostics=diagnostics)


def _whole(target: Target) -> Target | None:
    """The same target with all rows in memory, if they are there or are few enough to load.

    A chunk of rows is in memory anyway.
    """
    is_one_chunk = (target.density.num_rows or 0) <= CHUNK
    density = target.density.loaded(sys.maxsize if is_one_chunk else _LOADED_BYTES)
    return None if density is None else eqx.tree_at(lambda t: t.density, target, density)
