"""Whether to trust a fit: what was measured of it, and the doubts that remain, in words."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compile import one_shot
from ..diagnostics import (
    Difference,
    Importance,
    Movement,
    difference,
    discrepancy,
    importance,
    khat_threshold,
    movement,
    pareto_khat,
)
from ..posterior import Posterior
from ..targets import Target
from .gaussians import Gaussians

_NUM_MIXING = 2_000
_NUM_WEIGHED, _NUM_DRAWS = 2_000, 10_000
_FORGOTTEN = 0.5
"""The memory below which chains have seen enough of the target to vouch for the draws."""
_OUTSIDE = 0.05
"""Share of another run's draws beyond the 1% and 99% quantiles of the best one's, in any coordinate."""
_MARGIN = 0.05
"""Of the exponent of a tail, for rounding."""
_LEAST_MASS = 0.02
"""Of a mode that is worth finding."""


@dataclasses.dataclass(frozen=True)
class Findings:
    """What diagnostics say of a fit: numbers for its table, doubts in words, and the draws they were found with."""

    diagnostics: dict[str, Any]
    doubts: list[str]
    weighed: Importance | None = None
    moved: Movement | None = None


def examine(key: PRNGKeyArray, target: Target, posteriors: Sequence[Posterior], gaussians: Gaussians) -> Findings:
    """Examines the first posterior; the others are independent runs to agree with."""
    weigh_key, move_key, ksd_key, draw_key = jax.random.split(key, 4)
    best = posteriors[0]
    try:
        draws = np.asarray(best.sample(draw_key, _NUM_DRAWS), np.float64)
        weighed = importance(weigh_key, target, best, num_samples=_NUM_WEIGHED, num_mixing=_NUM_MIXING)
        moved = movement(move_key, target, best)
        apart = _differ(draws, [other.sample(draw_key, _NUM_DRAWS) for other in posteriors[1:]])
        # Chains bring a run that went astray back to where the best is, unless the best lacks something.
        astray = [other for other, one in zip(posteriors[1:], apart, strict=True) if not one.is_small()]
        back = [movement(move_key, target, other).after for other in astray]
    except (ValueError, np.linalg.LinAlgError) as error:
        return Findings({}, [f"the draws cannot be examined: {error}"])
    khat, limit = pareto_khat(weighed.log_weights), khat_threshold(len(weighed.log_weights))
    memory, change = float(np.max(moved.memory)), difference(draws, moved.after)
    doubts = [
        _chains_move(change),
        _weights_move(weighed, khat, limit),
        *(_runs_differ(draws, other) for other in back),
        _misses_modes(weighed, gaussians),
        _is_improper(target, draws),
        _tails_are_heavy(khat, limit, memory),
    ]
    diagnostics = {
        "ELBO": f"{weighed.elbo:.2f} ± {weighed.elbo_error:.2f}",
        "log evidence": f"{weighed.log_evidence:.2f} ± {weighed.log_evidence_error:.2f}",
        "Pareto k-hat": f"{khat:.2f}, K = {_NUM_MIXING:,}, at most {limit:.2f} for {len(weighed.log_weights):,} draws",
        "effective share": f"{weighed.effective_sample_size / len(weighed.log_weights):.2f} of the weights",
        "weights move": str(weighed.difference),
        "HMC moves": f"{change}; memory {memory:.2f}",
        "runs differ": "; ".join(str(one) for one in apart),
        "KSD²": str(discrepancy(ksd_key, target, best)),
    }
    return Findings(diagnostics, [doubt for doubt in doubts if doubt], weighed, moved)


def _differ(draws: Float[np.ndarray, "n d"], others: Sequence[Float[Any, "m d"]]) -> list[Difference]:
    return [difference(draws, np.asarray(other, np.float64)) for other in others]


def _chains_move(change: Difference) -> str | None:
    return None if change.is_small() else f"chains of HMC move the draws: {change}"


def _weights_move(weighed: Importance, khat: float, limit: float) -> str | None:
    """Weights know what chains cannot see: the shares of separate modes."""
    if khat > limit or weighed.difference.is_small(weighed.difference_error):
        return None
    return f"importance weights move the draws: {weighed.difference}"


def _runs_differ(draws: Float[np.ndarray, "n d"], other: Float[np.ndarray, "m d"]) -> str | None:
    """A run with a worse bound that lies within the best one is only narrower; one beside it has found other mass."""
    found = difference(draws, other)
    low, high = np.quantile(draws, (0.01, 0.99), axis=0)
    outside = np.mean((other < low) | (other > high), axis=0)
    if found.is_small() or np.max(outside) <= _OUTSIDE:
        return None
    return f"independent runs differ, and chains of HMC do not bring them together: {found}"


def _misses_modes(weighed: Importance, gaussians: Gaussians) -> str | None:
    """Gaussians found before training, whose evidence says that they hold mass, must hold as many draws."""
    total = np.logaddexp(weighed.log_evidence, np.max(_finite_elbos(gaussians), initial=-np.inf))
    radius2 = _nine_tenths_of_chi2(weighed.draws.shape[1])
    for mean, root, elbo in zip(*(np.asarray(part, np.float64) for part in gaussians), strict=True):
        mass = np.exp(elbo - total) if np.isfinite(elbo) and np.isfinite(root).all() else 0.0
        if mass < _LEAST_MASS:
            continue
        inside = np.mean(np.sum(np.linalg.solve(root, (weighed.draws - mean).T) ** 2, axis=0) < radius2)
        if inside < 0.25 * mass:
            return f"a mode with at least {mass:.0%} of the mass holds {inside:.1%} of the draws"
    return None


def _nine_tenths_of_chi2(dim: int) -> float:
    """The 90% quantile, by Wilson and Hilferty: importing scipy.stats takes longer than some fits."""
    return dim * (1 - 2 / (9 * dim) + 1.2816 * (2 / (9 * dim)) ** 0.5) ** 3


def _finite_elbos(gaussians: Gaussians) -> Float[np.ndarray, " m"]:
    elbos = np.asarray(gaussians.elbos, np.float64)
    return elbos[np.isfinite(elbos)]


def _is_improper(target: Target, draws: Float[np.ndarray, "n d"]) -> str | None:
    """Far out along every axis the density must fall faster than 1/r."""
    low, centre, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    steps = np.concatenate([np.diag(high - low), -np.diag(high - low)])
    near, far = (np.asarray(_along(target, centre, r * steps), np.float64) for r in (1e2, 1e4))
    fine = np.isfinite(near) & np.isfinite(far)
    slopes = np.full(len(near), -np.inf)
    slopes[fine] = (far[fine] - near[fine]) / np.log(1e2)
    if np.max(slopes) < -1 - _MARGIN:
        return None
    worst = int(np.argmax(slopes)) % len(centre)
    return f"the posterior may be improper: its density falls no faster than 1/r far out along coordinate {worst}"


@one_shot
def _along(target: Target, centre: Float[np.ndarray, " d"], steps: Float[np.ndarray, "n d"]) -> Float[Array, " n"]:
    points = jnp.asarray(centre[None] + steps, jnp.result_type(float))
    return jax.vmap(target.unwhitened().log_density)(points)


def _tails_are_heavy(khat: float, limit: float, memory: float) -> str | None:
    """Weights that cannot vouch for the draws, and chains that cannot either."""
    if khat < limit or memory < _FORGOTTEN:
        return None
    return f"the importance weights have heavy tails (k-hat {khat:.2f}), and chains are too slow to check the draws"
