"""Checks of a fit: what was measured, and the doubts that remain."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..diagnostics import (
    Difference,
    Importance,
    Movement,
    difference,
    discrepancy,
    khat_threshold,
    movement,
    pareto_khat,
    truncated_weights,
)
from ..results import FitDiagnostics, Posterior
from ..targets import Target
from ._doubts import (
    cannot_tell,
    memory_of_modes,
    moves,
    runs_differ,
    weights_move,
)
from ._gaussians import Gaussians
from ._modes import Modes, misses_modes
from ._tails import improper_around, improper_from, is_improper
from ._weights import NUM_MIXING, NUM_WEIGHED, WIDENING, weigh

_NUM_DRAWS, _MORE_CHAINS = 10_000, 3
_TINY = 1e-30


@dataclasses.dataclass(frozen=True)
class Findings:
    """What the checks found: the numbers, the doubts as sentences, and the draws that they used."""

    diagnostics: FitDiagnostics
    doubts: list[str]
    weighed: Importance | None = None
    moved: Movement | None = None


def examine(
    key: PRNGKeyArray,
    target: Target,
    best: Posterior,
    others: Sequence[Posterior],
    gaussians: Gaussians,
    modes: Modes | None = None,
    early: Float[np.ndarray, "n d"] | None = None,
) -> Findings:
    """Checks the best posterior.

    **Arguments:**

    - `others`: the posteriors of independent runs, which should agree with it.
    - `modes`: the separate modes that the search found.
    - `early`: points on paths of the search, before their ends.
    """
    weigh_key, wide_key, move_key, ksd_key, draw_key, runs_key = jax.random.split(key, 6)
    draws = np.asarray(best.sample(draw_key, _NUM_DRAWS), np.float64)
    try:
        # The wider weights decide the verdict and give the log evidence. The plain ones raise no
        # doubt: they give the ELBO, and the k-hat and the effective share that a fit prints.
        plain = weigh(weigh_key, target, best, 1.0)
        weighed = weigh(wide_key, target, best, WIDENING)
        moved = _moved(move_key, target, best, draws)
        # One half of the chains gives the axes, and the other half is compared along them.
        axes = _principal_axes(moved.after[::2])
    except (ValueError, np.linalg.LinAlgError) as error:
        return _unexamined(target, draws, early, error)
    khats, limit = (
        [pareto_khat(one.log_weights) for one in (plain, weighed)],
        khat_threshold(NUM_WEIGHED),
    )
    is_light = khats[1] < limit
    corrected = difference(draws, weighed.draws, truncated_weights(weighed.log_weights))
    memory = max(float(np.max(moved.memory)), memory_of_modes(moved, gaussians))
    change = difference(draws, moved.after)
    apart, disagreements = _compare_runs(runs_key, target, draws, others)
    improper = is_improper(target, draws, axes)
    doubts = [
        moves("chains of HMC", change, difference(draws @ axes, moved.after[1::2] @ axes)),
        weights_move(draws, weighed, corrected, axes) if is_light else None,
        *disagreements,
        misses_modes(draws, modes, target),
        improper,
        cannot_tell(weighed, is_light, memory),
    ]
    diagnostics = FitDiagnostics(
        elbo=plain.elbo,
        elbo_error=plain.elbo_error,
        log_evidence=weighed.log_evidence,
        log_evidence_error=weighed.log_evidence_error,
        pareto_khat=khats[0],
        pareto_khat_limit=limit,
        wide_pareto_khat=khats[1],
        effective_share=plain.effective_sample_size / NUM_WEIGHED,
        weights_difference=corrected.summary(),
        hmc_difference=change.summary(),
        hmc_memory=memory,
        run_differences=tuple(one.summary() for one in apart),
        ksd=discrepancy(ksd_key, target, best),
        num_weights=NUM_WEIGHED,
        num_mixing=NUM_MIXING,
        widening=WIDENING,
    )
    found = [doubt for doubt in doubts if doubt]
    if improper is None:
        found = _with_cause(target, early, found)
    return Findings(diagnostics, found, weighed, moved)


def _unexamined(
    target: Target,
    draws: Float[np.ndarray, "n d"],
    early: Float[np.ndarray, "n d"] | None,
    error: Exception,
) -> Findings:
    """Draws that run to infinity cannot be examined. Perhaps because the posterior is improper."""
    finite = draws[np.isfinite(draws).all(axis=1)]
    why = improper_around(target, finite) if len(finite) else None
    doubts = [f"the draws cannot be examined: {error}"]
    doubts = [why, *doubts] if why else _with_cause(target, early, doubts)
    return Findings(FitDiagnostics(), doubts)


def _with_cause(
    target: Target, early: Float[np.ndarray, "n d"] | None, doubts: list[str]
) -> list[str]:
    """The doubts, and an improper posterior as their cause if it shows from early points.

    Draws of an improper posterior may lie so far out that nothing shows from there. From points
    that are not among the draws, proper posteriors look improper at times. Hence this explains
    other doubts and raises none.
    """
    if not doubts or early is None:
        return doubts
    cause = improper_from(target, early)
    return doubts if cause is None else [cause, *doubts]


def _moved(key: PRNGKeyArray, target: Target, best: Posterior, draws: np.ndarray) -> Movement:
    """Chains from the draws, and more of them while the tails are undecided."""
    first, *more = jax.random.split(key, 1 + _MORE_CHAINS)
    num_chains = _num_chains(target.dim)
    moved = movement(first, target, best, num_chains=num_chains)
    for another in more:
        if not difference(draws, moved.after).is_undecided():
            break
        moved = moved.with_more(movement(another, target, best, num_chains=num_chains))
    return moved


def _num_chains(dim: int) -> int:
    """The number of HMC chains.

    Tails are averaged over coordinates, so few coordinates need more chains.
    """
    return max(1_000, 8_000 // dim)


def _principal_axes(draws: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """The principal axes of the draws, one per column, in standard deviations.

    Wrong dependence shows along them.
    """
    sd = np.maximum(draws.std(axis=0), _TINY)
    return np.linalg.eigh(np.atleast_2d(np.corrcoef(draws, rowvar=False)))[1] / sd[:, None]


def _compare_runs(
    key: PRNGKeyArray, target: Target, draws: Float[np.ndarray, "n d"], others: Sequence[Posterior]
) -> tuple[list[Difference], list[str | None]]:
    """The differences to the other runs, and doubts about runs that HMC does not unite."""
    apart: list[Difference] = []
    doubts: list[str | None] = []
    for i, other in enumerate(others):
        draw_key, move_key = jax.random.split(jax.random.fold_in(key, i))
        apart.append(difference(draws, np.asarray(other.sample(draw_key, _NUM_DRAWS), np.float64)))
        if not apart[-1].is_small():
            try:
                back = movement(move_key, target, other, num_chains=_num_chains(target.dim))
                doubts.append(runs_differ(draws, back.after))
            except (ValueError, np.linalg.LinAlgError) as error:
                doubts.append(f"an independent run cannot be examined: {error}")
    return apart, doubts
