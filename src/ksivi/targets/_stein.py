"""Stein's identity, as a measure of width."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar


def stein_ratio(
    x: Float[Array, "n d"], score: Float[Array, "n d"], others: Float[Array, "m d"]
) -> Scalar:
    """The Stein ratio −E⟨s_p(x), x − E x⟩ / d.

    It is 1 at q = p by Stein's identity, and c² for a Gaussian that is c times too wide.

    **Arguments:**

    - `x`, `score`: samples, and the target's score at them.
    - `others`: samples that E x is computed from.
    """
    return -jnp.mean(score * (x - jnp.mean(others, axis=0, keepdims=True)))
