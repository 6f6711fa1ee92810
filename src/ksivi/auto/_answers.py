"""The answers of `fit`, the cheapest first: a Gaussian, a mixture of Gaussians, a trained sampler."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._core.mixtures import Mixture, root_of
from .._core.numerics import new_key
from ..families import GaussianMixture
from ..results import Code, Fit, FitDiagnostics, Posterior
from ..targets import Evaluator, OutOfTime
from ..training import Callback, Checkpoints
from ._arguments import Kind
from ._better import better_draws, polished
from ._doubts import Findings
from ._em import fit_mixture
from ._measured import with_weighed_shares
from ._recipe import Recipe
from ._runs import View, final_bound, new_families, train_runs
from ._start import Start
from ._trust import examine
from ._verdict import Answer

Draws = Float[np.ndarray, "n d"]

_MOST_ROUNDS = 3
"""How often a mixture is fitted again, to draws that the checks have corrected."""
_MAX_BOUND_GAP = 4.0
"""Runs whose bound is worse by more nats are not compared."""


def mixture_answer(
    rng: np.random.Generator, evaluate: Evaluator, start: Start, kind: Kind
) -> tuple[Answer, Draws | None]:
    """A Gaussian, or a mixture of Gaussians that is fitted to draws; and the best draws so far.

    The checks correct the draws, by weights or by chains. While that changes them by more than
    noise, the mixture is fitted again, to the corrected draws.
    """
    answer, draws = _first(rng, evaluate, start), start.draws
    rounds = 0
    while not answer.is_final or (kind == "mixture" and rounds == 0 and answer.findings):
        assert answer.findings is not None
        try:
            better = better_draws(rng, evaluate, answer.findings)
            draws = draws if better is None else better
            if better is None or rounds == _MOST_ROUNDS:
                break
            mixture = polished(rng, evaluate, fit_mixture(rng, better))
        except OutOfTime:
            break
        except KeyboardInterrupt:
            return dataclasses.replace(answer, findings=None), draws
        answer, rounds = _checked(rng, evaluate, mixture, start), rounds + 1
    return answer, draws


def _first(rng: np.random.Generator, evaluate: Evaluator, start: Start) -> Answer:
    """The best Gaussian, a mixture that is known already, or one that is fitted to rough draws."""
    mixture = start.known or start.best
    if start.known is None and start.draws is not None:
        try:
            mixture = fit_mixture(rng, start.draws)
            mixture = polished(rng, evaluate, mixture)
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            return _unchecked(evaluate, mixture)
    return _checked(rng, evaluate, mixture, start)


def _unchecked(evaluate: Evaluator, mixture: Mixture) -> Answer:
    number = len(mixture.shares)
    name = "a Gaussian" if number == 1 else f"a mixture of {number} Gaussians"
    return Answer(Posterior.of(GaussianMixture.of(mixture), evaluate.target), name, None)


def _checked(
    rng: np.random.Generator, evaluate: Evaluator, mixture: Mixture, start: Start
) -> Answer:
    answer = _unchecked(evaluate, mixture)
    try:
        findings = examine(rng, evaluate, answer.posterior, start)
    except KeyboardInterrupt:
        return answer
    except OutOfTime:
        findings = Findings(
            FitDiagnostics(), [Code.NOT_CHECKED.doubt("the draws were not checked")]
        )
    return dataclasses.replace(answer, findings=findings)


def sampler_again(
    rng: np.random.Generator, evaluate: Evaluator, init: Posterior, start: Start
) -> Answer | None:
    """An earlier sampler as it is, if nothing speaks against it; otherwise None."""
    posterior = dataclasses.replace(init, target=evaluate.target.unwhitened(), about=None)
    try:
        findings = examine(rng, evaluate, posterior, start)
    except OutOfTime:
        return None
    good = dataclasses.replace(findings, is_close=True)  # as of a sampler that was trained now
    return None if findings.doubts else Answer(posterior, "a trained sampler", good)


def trained_answer(
    rng: np.random.Generator,
    evaluate: Evaluator,
    start: Start,
    draws: Draws | None,
    init: Posterior | None,
    recipe: Recipe,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints | None,
    show: Callable[[str], None],
    began: float,
) -> Answer:
    """A semi-implicit family, trained in independent runs. The best of them is checked.

    **Arguments:**

    - `draws`: rough draws to start from; None if one Gaussian is nearly enough.
    - `init`: a sampler to start from instead.
    - `began`: when the fit began, by `time.perf_counter`.
    """
    show("training")
    deadline = evaluate.deadline - _checks_s(evaluate, began)
    evaluate.deadline = math.inf  # the training leaves time for the checks
    view = view_of(evaluate, start, draws)
    if init is None:
        families = new_families(rng, evaluate, view, recipe)
    else:
        view = view._replace(target=init.view(evaluate.target))
        families = [init.family] * recipe.num_runs  # type: ignore[list-item]
    fewest = recipe.fewest_steps(is_gaussian=view.draws is None)
    fits, ending = train_runs(
        new_key(rng), view.target, families, recipe, fewest, deadline, callbacks, checkpoints
    )
    best, name = fits[0], "a trained sampler"
    if best.status.kind == "interrupted":
        return Answer(best.posterior, name, None, best, ending)
    show("checks")
    try:
        weighed = [with_weighed_shares(rng, evaluate, f.posterior, view.modes) for f in fits]
        findings = examine(rng, evaluate, weighed[0], start, _comparable(fits, weighed))
    except KeyboardInterrupt:
        return Answer(best.posterior, name, None, best, ending)
    return Answer(weighed[0], name, findings, best, ending)


def _checks_s(evaluate: Evaluator, began: float) -> float:
    """Checks take about as long as what came before the training, or a quarter of the budget."""
    return min(time.perf_counter() - began, (evaluate.deadline - began) / 4)


def view_of(evaluate: Evaluator, start: Start, draws: Draws | None) -> View:
    """The target in coordinates whitened by the draws, or by the best Gaussian without draws."""
    dtype = jnp.result_type(float)
    if draws is not None and start.modes is not None:
        draws = start.modes.with_lost(draws)
    if draws is None:
        loc, root, u = start.best.means[0], start.best.roots[0], None
    else:
        loc, root = draws.mean(axis=0), root_of(draws)
        u = jnp.asarray(np.linalg.solve(root, (draws - loc).T).T, dtype)
    whitened = evaluate.target.whitened(jnp.asarray(loc, dtype), jnp.asarray(root, dtype))
    modes = None if start.modes is None or draws is None else start.modes.of(draws)
    return View(whitened, u, modes)


def _comparable(fits: list[Fit], posteriors: list[Posterior]) -> list[Posterior]:
    """The other runs, except those with a much worse bound.

    The bound of a good fit to a mode with 2% of the mass is worse by at most 4 nats.
    """
    limit = final_bound(fits[0]) + _MAX_BOUND_GAP
    pairs = zip(fits[1:], posteriors[1:], strict=True)
    return [posterior for fit, posterior in pairs if final_bound(fit) < limit]
