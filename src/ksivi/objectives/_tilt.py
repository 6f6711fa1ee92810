"""Tilted kernels: where, and in which directions, KSIVI compares the scores of q and p."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.checks import as_floats, describe, holds_for_all


class Tilt(eqx.Module):
    r"""The matrices m(x) of a tilted kernel, which is m(x)ᵀ m(x′) k(x, x′):

        m(x) = (1 + ‖x‖²/d)^(g/2) (I + (r^(−a/2) − 1) ŝ ŝᵀ)

    with s = s_p(x), its direction ŝ = s/‖s‖, and r = 1 + ‖s‖²/d.

    The discrepancy is still 0 for q = p, but it weighs the differences of the scores otherwise. Where
    p is narrow and curved, draws beside it have large scores across it. In the plain discrepancy these
    outweigh what happens along it, so the sampler stays in the middle. The tilt is made for
    coordinates in which p has about mean 0 and covariance I.

    A tilt must not reward draws that run away. For light tails and the IMQ kernel choose
    a < g + ½: the discrepancy then grows with the distance.

    **Arguments:**

    - `across`: a, at least 0 and below 1. The difference counts less in the direction of s_p, which
        is the direction across a narrow part.
    - `growth`: g, at least 0. Points far out count more. The tails of the family must be light enough.

    ```python
    tilt = ksivi.objectives.Tilt(across=0.9, growth=1.0)
    objective = ksivi.KSIVI(ksivi.kernels.IMQ(), "mixture", tilt=tilt)
    ```
    """

    across: Array
    growth: Array

    def __init__(self, *, across: float | Array = 0.0, growth: float | Array = 0.0):
        self.across = _as_power(across, "across", below=1)
        self.growth = _as_power(growth, "growth", below=math.inf)

    def __call__(
        self, x: Float[Array, "*n d"], score: Float[Array, "*n d"], f: Float[Array, "*n d"]
    ) -> Float[Array, "*n d"]:
        """m(x) f, for every row."""
        across, growth = (power.astype(f.dtype) for power in (self.across, self.growth))
        squared = jnp.mean(score**2, axis=-1, keepdims=True)
        nearly_none = jnp.finfo(f.dtype).eps ** 2
        along = score * (jnp.mean(score * f, -1, keepdims=True) / (squared + nearly_none))
        # Not f + (r^(−a/2) − 1) along: where r is large, that loses all digits along s.
        turned = (f - along) + (1 + squared) ** (-across / 2) * along
        far = 1 + jnp.mean(x**2, axis=-1, keepdims=True)
        return turned * far ** (growth / 2)


def _as_power(value: Any, name: str, below: float) -> Float[Array, ""]:
    """One number of at least 0. Traced values are not checked."""
    found = as_floats(value, name, "one number")
    if found.shape != () or not holds_for_all(found, lambda v: (v >= 0) & (v < below)):
        limit = "finite" if below == math.inf else f"below {below}"
        raise ValueError(
            f"{name} must be one number, at least 0 and {limit}, got {describe(value)}"
        )
    return found
