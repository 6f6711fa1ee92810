"""Draws that are corrected after training. They are kept apart from the sampler's draws."""

import dataclasses
from typing import Literal, get_args

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..diagnostics import pareto_khat
from ..families import Empirical
from ..results import Posterior
from ..targets import Target
from ._trust import Findings

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
    key: PRNGKeyArray, target: Target, refine: Refinement, findings: Findings
) -> Refined | None:
    """The corrected draws, taken from the checks; None if the draws could not be checked."""
    weighed, moved = findings.weighed, findings.moved
    if weighed is None or moved is None:
        return None
    if refine == "hmc":
        draws, effective = moved.after, float(len(moved.after))
    else:
        draws, effective = weighed.resampled(key)
    by = _IN_WORDS[refine] + (
        f", k-hat {pareto_khat(weighed.log_weights):.2f}" if refine == "importance" else ""
    )
    stored = Empirical(jnp.asarray(draws, jnp.result_type(float)))
    return Refined(by, Posterior.of(stored, target.unwhitened()), effective)
