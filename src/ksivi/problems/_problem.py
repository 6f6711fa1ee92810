"""The interface of problems."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key
from ..families import Empirical
from ..targets import Target

_TRUTH_SEED, _NUM_CHAINS = 0, 4


class AbstractProblem(eqx.Module):
    """A target with a name, and a way to draw from the truth."""

    name: eqx.AbstractVar[str]
    target: eqx.AbstractVar[Target]

    @abc.abstractmethod
    def reference(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws of the truth."""

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n starting points for particles and chains."""


def near_origin(key: PRNGKeyArray, n: int, dim: int, scale: float = 1.0) -> Float[Array, "n d"]:
    """n draws of N(0, scale² I)."""
    return scale * jax.random.normal(as_single_key(key), (as_count(n, "n"), dim))


def resample_truth(
    key: PRNGKeyArray, n: int, problem: AbstractProblem, draws: Float[Array, "k d"] | None
) -> Float[Array, "n d"]:
    """Resamples n of the given draws, or of draws that NUTS makes once and caches on disk.

    No draw is used twice before every draw is used once. NUTS has a fixed key, so the truth is the
    same for everyone.
    """
    key, n = as_single_key(key), as_count(n, "n")
    if draws is None:
        from ..methods import NUTS, reference_draws  # needs BlackJAX, which is optional

        start_key, run_key = jax.random.split(jax.random.key(_TRUTH_SEED))
        method = NUTS(
            _NUM_CHAINS,
            num_draws=2_500,
            target_acceptance=0.9,
            start=problem.start(start_key, _NUM_CHAINS),
        )
        draws = reference_draws(run_key, problem.target, method=method)
    return Empirical(draws).sample(key, n)
