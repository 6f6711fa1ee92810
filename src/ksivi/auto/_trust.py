"""Checks of a posterior: the numbers, and the doubts that remain."""

from collections.abc import Sequence

import numpy as np

from .._core.numerics import new_key
from ..diagnostics import (
    WIDENING,
    Difference,
    Movement,
    difference,
    discrepancy,
    khat_threshold,
)
from ..results import Code, Discrepancy, Doubt, FitDiagnostics, Posterior
from ..targets import Evaluator
from ._doubts import (
    Correction,
    Findings,
    cannot_tell,
    chains_move,
    memory_of_modes,
    runs_differ,
    too_unlikely,
    weights_move,
)
from ._measured import (
    NUM_MIXING,
    Draws,
    Measured,
    batch_of_chains,
    measure,
    num_weighed,
    other_draws,
    share,
)
from ._modes import misses_modes
from ._start import Start
from ._tails import improper_around, is_improper


def examine(
    rng: np.random.Generator,
    evaluate: Evaluator,
    posterior: Posterior,
    start: Start,
    others: Sequence[Posterior] = (),
    moved: Movement | None = None,
) -> Findings:
    """Checks a posterior.

    **Arguments:**

    - `start`: what the search found: modes, which the draws must not miss.
    - `others`: the posteriors of independent runs, which should agree with it.
    - `moved`: chains that have settled. Default: new chains from draws of the posterior.
    """
    try:
        found = measure(rng, evaluate, posterior, moved)
        moves = doubts_of(found)
    except (ValueError, np.linalg.LinAlgError) as error:
        return _unexamined(rng, evaluate, posterior, start, error)
    is_mixture = posterior.on_host() is not None
    is_provisional = is_mixture and not found.is_close and moved is None
    # The tails are measured from draws that are near the target: others mislead.
    tails = None if is_provisional else is_improper(evaluate, found.draws, found.axes)
    improper = start.improper or tails
    memory = max(float(np.max(found.moved.memory)), memory_of_modes(found.moved, start.gaussians))
    apart, disagreements = _compare_runs(rng, evaluate, found.draws, others)
    doubts = [
        improper,
        *moves,
        *disagreements,
        misses_modes(found.draws, start.modes, evaluate.target),
        cannot_tell(found.weighed, found.is_light, memory),
    ]
    ksd = None if is_provisional else discrepancy(new_key(rng), evaluate.target, posterior)
    return Findings(
        _diagnostics(found, memory, apart, ksd, is_mixture),
        [doubt for doubt in doubts if doubt],
        found.weighed,
        found.moved,
        found.is_light,
        found.is_close,
        improper,
        found.draws,
        found.has_settled,
    )


def doubts_of(found: Measured) -> list[Doubt]:
    """What chains, and weights where they are reliable, say against draws."""
    compared = found.by_chains, found.draws, found.others, found.axes
    doubts = [*chains_move(Correction(*compared, error=found.noise)), *doubts_by_weights(found)]
    # Wrong coordinates make draws unlikely too: they are named already.
    return doubts or [doubt for doubt in [too_unlikely(found.unlikely)] if doubt]


def doubts_by_weights(found: Measured) -> list[Doubt]:
    if not found.is_light:
        return []
    return weights_move(found.draws, found.weighed, found.by_weights, found.axes)


def _diagnostics(
    found: Measured,
    memory: float,
    apart: list[Difference],
    ksd: Discrepancy | None,
    is_mixture: bool,
) -> FitDiagnostics:
    return FitDiagnostics(
        elbo=found.plain.elbo,
        elbo_error=found.plain.elbo_error,
        log_evidence=found.weighed.log_evidence,
        log_evidence_error=found.weighed.log_evidence_error,
        pareto_khat=found.khats[0],
        pareto_khat_limit=khat_threshold(num_weighed(found.draws.shape[1])),
        wide_pareto_khat=found.khats[1],
        effective_share=share(found.plain),
        weights_difference=found.by_weights.summary(),
        hmc_difference=found.by_chains.summary(),
        hmc_memory=memory,
        run_differences=tuple(one.summary() for one in apart),
        ksd=ksd,
        num_weights=num_weighed(found.draws.shape[1]),
        num_mixing=0 if is_mixture else NUM_MIXING,  # a mixture has no z
        widening=WIDENING,
    )


def _unexamined(
    rng: np.random.Generator,
    evaluate: Evaluator,
    posterior: Posterior,
    start: Start,
    error: Exception,
) -> Findings:
    """Draws that run to infinity cannot be examined. Perhaps because the posterior is improper."""
    draws = other_draws(rng, posterior)
    finite = draws[np.isfinite(draws).all(axis=1)]
    why = start.improper or (improper_around(evaluate, finite) if len(finite) else None)
    doubts = [Code.NOT_EXAMINED.doubt(f"the draws cannot be examined: {error}")]
    return Findings(FitDiagnostics(), [why, *doubts] if why else doubts, improper=why)


def _compare_runs(
    rng: np.random.Generator, evaluate: Evaluator, draws: Draws, others: Sequence[Posterior]
) -> tuple[list[Difference], list[Doubt | None]]:
    """The differences to the other runs, and doubts about runs that HMC does not unite."""
    apart: list[Difference] = []
    doubts: list[Doubt | None] = []
    for other in others:
        apart.append(difference(draws, other_draws(rng, other)))
        if not apart[-1].is_small():
            try:
                settled = batch_of_chains(rng, evaluate, other).settled
                doubts.append(runs_differ(draws, settled))
            except (ValueError, np.linalg.LinAlgError) as error:
                why = f"an independent run cannot be examined: {error}"
                doubts.append(Code.RUN_NOT_EXAMINED.doubt(why))
    return apart, doubts
