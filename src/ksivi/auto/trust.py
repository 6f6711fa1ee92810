"""Whether to trust a fit: what was measured of it, and the doubts that remain, in words."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

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
from .doubts import cannot_tell, is_improper, memory_of_modes, misses_modes, moves, runs_differ, weights_move
from .gaussians import Gaussians

_NUM_MIXING = 2_000
_NUM_WEIGHED, _NUM_DRAWS = 2_000, 10_000
_TINY = 1e-30


@dataclasses.dataclass(frozen=True)
class Findings:
    """What diagnostics say of a fit: numbers for its table, doubts in words, and the draws they were found with."""

    diagnostics: dict[str, Any]
    doubts: list[str]
    weighed: Importance | None = None
    moved: Movement | None = None


def examine(
    key: PRNGKeyArray, target: Target, best: Posterior, others: Sequence[Posterior], gaussians: Gaussians
) -> Findings:
    """Examines the best posterior; the others are independent runs to agree with."""
    weigh_key, move_key, ksd_key, draw_key, runs_key = jax.random.split(key, 5)
    try:
        draws = np.asarray(best.sample(draw_key, _NUM_DRAWS), np.float64)
        weighed = importance(weigh_key, target, best, num_samples=_NUM_WEIGHED, num_mixing=_NUM_MIXING)
        moved = movement(move_key, target, best, num_chains=_num_chains(target.dim))
        # Found on half of the chains, tried on the other half.
        axes = _principal_axes(moved.after[::2])
    except (ValueError, np.linalg.LinAlgError) as error:
        return Findings({}, [f"the draws cannot be examined: {error}"])
    khat, limit = pareto_khat(weighed.log_weights), khat_threshold(len(weighed.log_weights))
    memory = max(float(np.max(moved.memory)), memory_of_modes(moved, gaussians))
    change = difference(draws, moved.after)
    apart, disagreements = _compare_runs(runs_key, target, draws, others)
    doubts = [
        moves("chains of HMC", change, difference(draws @ axes, moved.after[1::2] @ axes)),
        weights_move(weighed, axes) if khat < limit else None,
        *disagreements,
        misses_modes(weighed, gaussians),
        is_improper(target, draws, axes),
        cannot_tell(weighed, khat < limit, memory),
    ]
    diagnostics = {
        "ELBO": f"{weighed.elbo:.2f} ± {weighed.elbo_error:.2f}",
        "log evidence": f"{weighed.log_evidence:.2f} ± {weighed.log_evidence_error:.2f}",
        "Pareto k-hat": f"{khat:.2f}, K = {_NUM_MIXING:,}, at most {limit:.2f} for {len(weighed.log_weights):,} draws",
        "effective share": f"{weighed.effective_sample_size / len(weighed.log_weights):.2f} of the weights",
        "weights move": str(weighed.difference),
        "HMC moves": f"{change}; memory {memory:.2f}",
        "runs differ": "; ".join(str(one) for one in apart) or "no other run came near",
        "KSD²": str(discrepancy(ksd_key, target, best)),
    }
    return Findings(diagnostics, [doubt for doubt in doubts if doubt], weighed, moved)


def _num_chains(dim: int) -> int:
    """Tails are averages over coordinates: more chains where there are few."""
    return max(1_000, 8_000 // dim)


def _principal_axes(draws: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """Columns onto which draws project uncorrelated, in standard deviations: where wrong dependence shows."""
    sd = np.maximum(draws.std(axis=0), _TINY)
    return np.linalg.eigh(np.atleast_2d(np.corrcoef(draws, rowvar=False)))[1] / sd[:, None]


def _compare_runs(
    key: PRNGKeyArray, target: Target, draws: Float[np.ndarray, "n d"], others: Sequence[Posterior]
) -> tuple[list[Difference], list[str | None]]:
    """How the other runs differ, and doubts about those that chains do not bring back to where the best one is."""
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
