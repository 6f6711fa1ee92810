"""Draws that are corrected after training. They are kept apart from the sampler's draws."""

import dataclasses
from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np

from .._core.numerics import new_key
from ..diagnostics import pareto_khat
from ..families import Empirical
from ..results import Posterior
from ..targets import Target
from ._doubts import Findings

Refinement = Literal["hmc", "importance"]

_IN_WORDS = {
    "hmc": "Hamiltonian Monte Carlo from the sampler's draws",
    "importance": "importance resampling",
}


@dataclasses.dataclass(frozen=True)
class Refined:
    """Corrected draws.

    **Attributes:**

    - `by`: the method that corrected them.
    - `posterior`: a `Posterior` of these stored draws.
    - `effective`: their effective sample size. It is smaller than their number if they were
        resampled by weights.
    """

    by: str
    posterior: Posterior
    effective: float


def require_refinement(refine: str) -> None:
    if refine not in get_args(Refinement):
        raise ValueError(f'refine must be "hmc" or "importance", got {refine!r}')


def refined(
    rng: np.random.Generator, target: Target, refine: Refinement, findings: Findings | None
) -> Refined | None:
    """The corrected draws, taken from the checks; None if the draws could not be checked."""
    if findings is None or findings.weighed is None or findings.moved is None:
        return None
    weighed, moved = findings.weighed, findings.moved
    if refine == "hmc":
        draws, effective = moved.after, float(len(moved.after))
    else:
        draws, effective = weighed.resampled(new_key(rng))
    by = _IN_WORDS[refine] + (
        f", k-hat {pareto_khat(weighed.log_weights):.2f}" if refine == "importance" else ""
    )
    stored = Empirical(jnp.asarray(draws, jnp.result_type(float)))
    return Refined(by, Posterior.of(stored, target.unwhitened()), effective)
