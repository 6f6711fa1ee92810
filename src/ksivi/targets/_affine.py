"""Affine coordinates x = loc + scale · u."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_floats
from .._core.numerics import full_precision
from .._core.registry import register


@register
class Affine(eqx.Module):
    """x = loc + scale ⊙ u for a vector `scale`, and x = loc + scale u for a matrix."""

    loc: Float[Array, " d"]
    scale: Float[Array, " d"] | Float[Array, "d d"]

    def __call__(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.loc + self.linear(u)

    def inverse(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """u with self(u) = x."""
        return (
            (x - self.loc) / self.scale
            if self.scale.ndim == 1
            else jnp.linalg.solve(self.scale, x - self.loc)
        )

    def linear(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        with full_precision():
            return u * self.scale if self.scale.ndim == 1 else u @ self.scale.T

    def pull_back(self, score: Float[Array, " d"]) -> Float[Array, " d"]:
        """Turns a score in x into the score in u: scaleᵀ s."""
        with full_precision():
            return score * self.scale if self.scale.ndim == 1 else score @ self.scale

    def log_det(self) -> Scalar:
        """log |det dx/du|."""
        if self.scale.ndim == 1:
            return jnp.sum(jnp.log(jnp.abs(self.scale)))
        return jnp.linalg.slogdet(self.scale)[1]

    def after(self, inner: "Affine") -> "Affine":
        """The composition u ↦ self(inner(u))."""
        if self.scale.ndim == 1:
            outer = self.scale if inner.scale.ndim == 1 else self.scale[:, None]
            return Affine(self(inner.loc), outer * inner.scale)
        with full_precision():
            scale = (
                self.scale * inner.scale[None, :]
                if inner.scale.ndim == 1
                else self.scale @ inner.scale
            )
        return Affine(self(inner.loc), scale)


def as_affine(loc: Array, scale: Array, dim: int) -> Affine:
    """The coordinates that a user gave as a centre and a scale."""
    affine = Affine(as_floats(loc, "loc"), as_floats(scale, "scale"))
    if affine.loc.shape != (dim,) or affine.scale.shape not in ((dim,), (dim, dim)):
        raise ValueError(
            f"loc must have shape ({dim},) and scale ({dim},) or ({dim}, {dim}), "
            f"got {affine.loc.shape} and {affine.scale.shape}"
        )
    is_known = not isinstance(affine.scale, jax.core.Tracer)
    if is_known and not bool(jnp.isfinite(affine.log_det())):
        raise ValueError(f"scale must be finite and invertible, got {affine.scale}")
    return affine
