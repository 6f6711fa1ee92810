"""Draws that are corrected after the checks. They are kept apart from the answer's draws."""

import dataclasses
from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._core.numerics import new_key
from ..diagnostics import Movement, chains, pareto_khat
from ..families import Empirical, WarpedGaussian
from ..results import Posterior
from ..targets import Evaluator
from ._verdict import Answer

Refinement = Literal["hmc", "importance"]

_IN_WORDS = {
    "hmc": "Hamiltonian Monte Carlo from the sampler's draws",
    "importance": "importance resampling",
}


_FEWEST = 1_000
"""The smallest number of chains."""


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
    if not isinstance(refine, str) or refine not in get_args(Refinement):
        raise ValueError(f'refine must be "hmc" or "importance", got {refine!r}')


def refined(
    rng: np.random.Generator, evaluate: Evaluator, refine: Refinement, answer: Answer
) -> Refined | None:
    """The corrected draws, taken from the checks; None if the draws could not be checked."""
    findings = answer.findings
    if findings is None or findings.weighed is None or findings.moved is None:
        return None
    if refine == "hmc":
        draws, effective = _settled(rng, evaluate, answer.posterior, findings.moved)
        by = _IN_WORDS[refine]
    else:
        draws, effective = findings.weighed.resampled(new_key(rng))
        by = f"{_IN_WORDS[refine]}, k-hat {pareto_khat(findings.weighed.log_weights):.2f}"
    stored = Empirical(jnp.asarray(draws, jnp.result_type(float)))
    return Refined(by, Posterior.of(stored, evaluate.target), effective)


def _settled(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, moved: Movement
) -> tuple[Float[np.ndarray, "n d"], float]:
    """States of the chains of the checks, or the ends of new ones if those were few and short.

    The second value is their effective number. A warped Gaussian is fitted to the states of long
    chains, which are then all given.
    """
    if isinstance(posterior.family, WarpedGaussian):
        return moved.pooled, float(len(moved.settled))
    draws = moved.settled
    if len(draws) < _FEWEST:
        draws = chains(rng, evaluate, posterior.host_draws(rng, _FEWEST)).after
    return draws, float(len(draws))
