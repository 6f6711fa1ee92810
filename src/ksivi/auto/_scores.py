"""`fit` on targets that have a score and no log density: values by integrals along lines."""

import dataclasses
import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..results import Code, Fit, FitDiagnostics, Posterior
from ..targets import Evaluator, LineDensity, Target
from ._verdict import FitTo, of_target, with_doubt, with_remark

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
    is no gradient. While more nodes make it smaller, there is another fit, along lines from the
    mean of the draws.
    """
    start = np.zeros(target.dim) if init is None else _draws(rng, init).mean(axis=0)
    num_nodes, count, before = _FEWEST_NODES, 0, math.inf
    while True:
        try:
            fit = fit_to(_along_lines(target, start, num_nodes), init)
        except RuntimeError:
            if num_nodes == _FEWEST_NODES:
                raise
            return _judged(fit, before)  # the budget ended before another answer
        count += (1 + num_nodes) * fit.cost.score_evals
        fit = _of_score(fit, target, count)
        if fit.status.kind == "interrupted":
            return fit
        show("integrals along other lines")
        draws = _draws(rng, fit.posterior)
        # From a draw: lines from the mean and from the origin may be the same.
        error = _difference(target, draws, (start, draws[0]), num_nodes)
        if error < _GOOD_ERROR or not error < before or num_nodes >= _MOST_NODES:
            return _judged(fit, error)
        start, before = draws.mean(axis=0), error
        num_nodes, init = _MORE_NODES * num_nodes, fit.posterior


def _draws(rng: np.random.Generator, posterior: Posterior) -> Float[np.ndarray, "n d"]:
    return posterior.host_draws(rng, _NUM_DRAWS)


def _along_lines(target: Target, start: Float[np.ndarray, " d"], num_nodes: int) -> Target:
    density = LineDensity(target.density, jnp.asarray(start, jnp.result_type(float)), num_nodes)
    return eqx.tree_at(lambda t: t.density, target.unwhitened(), density)


def _difference(
    target: Target,
    draws: Float[np.ndarray, "n d"],
    starts: tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]],
    num_nodes: int,
) -> float:
    """The standard deviation over draws of the difference between integrals of two kinds."""
    first = _along_lines(target, starts[0], num_nodes)
    second = _along_lines(target, starts[1], _MORE_NODES * num_nodes)
    try:
        values = [Evaluator(one).log_density(draws) for one in (first, second)]
    except KeyboardInterrupt:  # the answer is there already
        return math.nan
    return float(np.std(values[0] - values[1]))


def _of_score(fit: Fit[FitDiagnostics], target: Target, count: int) -> Fit[FitDiagnostics]:
    """The fit as one to the target itself. Its evidence is not known: a score has no constant."""
    diagnostics = dataclasses.replace(fit.diagnostics, elbo=math.nan, log_evidence=math.nan)
    cost = dataclasses.replace(fit.cost, score_evals=count)
    return dataclasses.replace(of_target(fit, target), diagnostics=diagnostics, cost=cost)


def _judged(fit: Fit[FitDiagnostics], error: float) -> Fit[FitDiagnostics]:
    """The fit with what the lines say for it or against it."""
    diagnostics = dataclasses.replace(fit.diagnostics, lines_error=error)
    fit = dataclasses.replace(fit, diagnostics=diagnostics)
    if error <= _WORST_ERROR:
        remark = f"log densities are integrals of the score, off by {error:.2g} nats"
        return with_remark(fit, remark)
    if math.isnan(error):
        missing = "integrals of the score along other lines were not compared"
        return with_doubt(fit, Code.LINES_NOT_COMPARED.doubt(missing))
    differ = (
        f"integrals of the score along different lines differ by {error:.2g} nats, at most "
        f"{_WORST_ERROR:g} to be trusted: the score is no gradient, or it varies too quickly"
    )
    return with_doubt(fit, Code.LINES_ERROR.doubt(differ))
