"""A problem: a target, its truth, its name."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_count, as_single_key
from ..targets import Target


class AbstractProblem(eqx.Module):
    """A target with a way to know the truth about it."""

    name: eqx.AbstractVar[str]
    target: eqx.AbstractVar[Target]

    @abc.abstractmethod
    def reference(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws of the truth."""


def resample(key: PRNGKeyArray, n: int, draws: Float[Array, "k d"] | None) -> Float[Array, "n d"]:
    """n of the given reference draws, with replacement."""
    if draws is None:
        raise ValueError("this posterior has no exact sampler: make the problem with reference= long-run MCMC draws")
    return draws[jax.random.randint(as_single_key(key), (as_count(n, "n"),), 0, len(draws))]
