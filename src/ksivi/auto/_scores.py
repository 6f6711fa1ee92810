"""`fit` on targets that have a score and no log density: values by integrals along lines."""

import dataclasses
import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._core.wording import apart
from ..results import Code, Cost, Fit, FitDiagnostics, Posterior
from ..targets import Evaluator, LineDensity, Target
from ._amended import of_target, with_doubt, with_remark
from ._verdict import FitTo

_FEWEST_NODES, _MORE_NODES, _MOST_NODES = 16, 4, 256
"""The nodes of the first fit, how many times as many each later one has, and those of the last."""
_GOOD_ERROR, _WORST_ERROR = 0.03, 0.1
"""With a smaller error, in nats, no further fit is made. A larger one is a doubt."""
_NUM_DRAWS = 128


def fit_to_score(
    rng: np.random.Generator,
    target: Target,
    init: Posterior | None,
    fit_to: FitTo,
    show: Callable[[str], None],
) -> Fit[FitDiagnostics]:
    """Fits the log density that integrals of the score along lines from a point give.

    The point is the origin, or the mean of an earlier posterior. Integrals from another point, with
    more nodes, must differ by the same number at every draw. The standard deviation over draws is
    the error of the log density: it is large if the score varies quickly along the lines, or if it
    is not a gradient. While more nodes make it smaller, there is another fit, along lines from the
    mean of the draws.
    """
    start = np.zeros(target.dim) if init is None else _draws(rng, init).mean(axis=0)
    num_nodes, spent = _FEWEST_NODES, Cost(0.0, 0, 0)
    best: tuple[Fit[FitDiagnostics], float] | None = None
    while True:
        try:
            fit = fit_to(along_lines(target, start, num_nodes), init)
        except (RuntimeError, ValueError, KeyboardInterrupt):
            if best is None:
                raise
            return _judged(*best, spent)  # stopped, or out of time, before another answer
        spent = _sum(spent, fit.cost, 1 + num_nodes)
        fit = _of_score(fit, target, spent)
        if fit.status.kind == "interrupted":
            return fit if best is None else _judged(*best, spent)
        show("integrals along other lines")
        draws = _draws(rng, fit.posterior)
        # From a draw: lines from the mean and from the origin may be the same.
        error = _difference(target, draws, (start, draws[0]), num_nodes)
        if best is not None and not error < best[1]:
            return _judged(*best, spent)
        if not error > _GOOD_ERROR or num_nodes >= _MOST_NODES:
            return _judged(fit, error, spent)
        best = fit, error
        start, init = draws.mean(axis=0), fit.posterior
        num_nodes *= _MORE_NODES


def _sum(before: Cost, cost: Cost, evals_each: int) -> Cost:
    """What all fits cost. The seconds of each count from the beginning of the first."""
    scores = dataclasses.replace(cost, score_evals=evals_each * cost.score_evals)
    return Cost.of_all([before, scores], cost.seconds)


def _draws(rng: np.random.Generator, posterior: Posterior) -> Float[np.ndarray, "n d"]:
    return posterior.host_draws(rng, _NUM_DRAWS)


def along_lines(
    target: Target, start: Float[np.ndarray, " d"], num_nodes: int = _FEWEST_NODES
) -> Target:
    """The target with the log density that integrals of its score along lines from a point give."""
    density = LineDensity(target.density, jnp.asarray(start, jnp.result_type(float)), num_nodes)
    return eqx.tree_at(lambda t: t.density, target.unwhitened(), density)


def _difference(
    target: Target,
    draws: Float[np.ndarray, "n d"],
    starts: tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]],
    num_nodes: int,
) -> float:
    """The standard deviation over draws of the difference between integrals of two kinds."""
    first = along_lines(target, starts[0], num_nodes)
    second = along_lines(target, starts[1], _MORE_NODES * num_nodes)
    try:
        values = [Evaluator(one).log_density(draws) for one in (first, second)]
    except KeyboardInterrupt:  # the answer is there already
        return math.nan
    return float(np.std(values[0] - values[1]))


def _of_score(fit: Fit[FitDiagnostics], target: Target, cost: Cost) -> Fit[FitDiagnostics]:
    """The fit as one to the target itself. A score does not determine the evidence."""
    unknown = ("elbo", "elbo_error", "log_evidence", "log_evidence_error")
    diagnostics = dataclasses.replace(fit.diagnostics, **dict.fromkeys(unknown, math.nan))  # type: ignore[arg-type]
    return dataclasses.replace(of_target(fit, target), diagnostics=diagnostics, cost=cost)


def _judged(fit: Fit[FitDiagnostics], error: float, spent: Cost) -> Fit[FitDiagnostics]:
    """The fit with what the lines say for it or against it, and what all fits have cost."""
    diagnostics = dataclasses.replace(fit.diagnostics, lines_error=error)
    fit = dataclasses.replace(fit, diagnostics=diagnostics, cost=spent)
    if error <= _WORST_ERROR:
        remark = f"log densities are integrals of the score, off by {error:.2g} nats"
        return with_remark(fit, remark)
    if math.isnan(error):
        missing = "integrals of the score along other lines were not compared"
        return with_doubt(fit, Code.LINES_NOT_COMPARED.doubt(missing))
    found, limit = apart(error, _WORST_ERROR, "g")
    differ = (
        f"integrals of the score along different lines differ by {found} nats, at most "
        f"{limit} nats to be trusted: the score is not a gradient, or it varies too quickly"
    )
    return with_doubt(fit, Code.LINES_ERROR.doubt(differ))
