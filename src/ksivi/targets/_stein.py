"""Stein's identity, as a measure of width."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar


def stein_ratio(x: Float[Array, "n d"], score: Float[Array, "n d"], others: Float[Array, "m d"]) -> Scalar:
    """−E⟨s_p(x), x − E x⟩ / d: 1 at q = p by Stein's identity, c² for a Gaussian c times too wide.

    **Arguments:**

    - `x`, `score`: samples, and the target's score there.
    - `others`: samples to take E x from.
    """
    return -jnp.mean(score * (x - jnp.mean(others, axis=0, keepdims=True)))
