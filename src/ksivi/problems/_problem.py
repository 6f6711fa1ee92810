"""A problem: a target, its truth, its name."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key
from ..families import Empirical
from ..methods import NUTS, reference_draws
from ..targets import Target

_TRUTH_SEED, _NUM_CHAINS = 0, 4


class AbstractProblem(eqx.Module):
    """A target with a way to know the truth about it."""

    name: eqx.AbstractVar[str]
    target: eqx.AbstractVar[Target]

    @abc.abstractmethod
    def reference(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws of the truth."""

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n points where particles and chains may sensibly start."""


def near_origin(key: PRNGKeyArray, n: int, dim: int, scale: float = 1.0) -> Float[Array, "n d"]:
    """n draws of N(0, scale² I)."""
    return scale * jax.random.normal(as_single_key(key), (as_count(n, "n"), dim))


def long_run(
    key: PRNGKeyArray, n: int, problem: AbstractProblem, draws: Float[Array, "k d"] | None
) -> Float[Array, "n d"]:
    """n of the given long-run draws, or of those that NUTS makes once and keeps on disk; each once before any twice.

    The truth belongs to the problem, not to the caller's key, so that it is the same for everyone.
    """
    key, n = as_single_key(key), as_count(n, "n")
    if draws is None:
        start_key, run_key = jax.random.split(jax.random.key(_TRUTH_SEED))
        method = NUTS(_NUM_CHAINS, num_draws=2_500, target_acceptance=0.9, start=problem.start(start_key, _NUM_CHAINS))
        draws = reference_draws(run_key, problem.target, method=method)
    return Empirical(draws).sample(key, n)
