"""One transition of Hamiltonian Monte Carlo. BlackJAX is an optional extra, and every fit runs this."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

_LEAPFROG = 8
_JITTER = (-1.5, 0.3)
"""Bounds of the log of the factor of a step size."""


class Place(NamedTuple):
    """A point, its log density and score, and anything else that was computed there."""

    x: Float[Array, " d"]
    value: Scalar
    score: Float[Array, " d"]
    extra: PyTree = None

    def times(self, beta: Scalar) -> "Place":
        """The place for the density p^β."""
        return self._replace(value=beta * self.value, score=beta * self.score)


def hmc_transition(
    key: PRNGKeyArray,
    evaluate: Callable[[Float[Array, " d"]], Place],
    place: Place,
    step: Scalar,
) -> tuple[Place, Scalar]:
    """The next place of a chain, and the probability with which the proposal was accepted.

    **Arguments:**

    - `evaluate`: the place at a point.
    - `step`: step size. It is jittered, so that some chains take small steps into narrow regions.
    """
    momentum_key, jitter_key, accept_key = jax.random.split(key, 3)
    dtype = place.x.dtype
    p = jax.random.normal(momentum_key, place.x.shape, dtype)
    step = step * jnp.exp(jax.random.uniform(jitter_key, (), dtype, *_JITTER))

    def leap(carry, _):
        place, p = carry
        p = p + 0.5 * step * place.score
        place = evaluate(place.x + step * p)
        return (place, p + 0.5 * step * place.score), None

    (new, momentum), _ = lax.scan(leap, (place, p), None, length=_LEAPFROG)
    gain = new.value - place.value - 0.5 * (jnp.sum(momentum**2) - jnp.sum(p**2))
    # Where p is 0 the gain is +∞, and any finite point is accepted.
    is_finite = jnp.isfinite(new.value) & ~jnp.isnan(gain) & jnp.all(jnp.isfinite(new.x))
    probability = jnp.where(is_finite, jnp.exp(jnp.minimum(gain, 0)), 0)
    accept = jax.random.uniform(accept_key, (), dtype) < probability
    return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, place), probability
