"""A trained affine layer after the conditional, for correlations that a diagonal σ(z) lacks."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from .._core.numerics import full_precision
from .._core.registry import register


@register
class Triangular(eqx.Module):
    """x = loc + L u with L lower triangular. Its diagonal is an exponential, hence positive.

    ```python
    layer = ksivi.families.Triangular.identity(2)
    ```
    """

    loc: Float[Array, " d"]
    lower: Float[Array, "d d"]

    @classmethod
    def identity(cls, dim: int) -> "Triangular":
        """The layer x = u."""
        return cls(jnp.zeros(dim), jnp.zeros((dim, dim)))

    @property
    def matrix(self) -> Float[Array, "d d"]:
        """L."""
        return jnp.tril(self.lower, -1) + jnp.diag(jnp.exp(jnp.diagonal(self.lower)))

    def __call__(self, u: Float[Array, "n d"]) -> Float[Array, "n d"]:
        with full_precision():
            return self.loc[None] + u @ self.matrix.T

    def inverse(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """u with self(u) = x."""
        return jax.scipy.linalg.solve_triangular(self.matrix, (x - self.loc[None]).T, lower=True).T

    def push_score(self, score: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Turns a score in u into the score in x: L⁻ᵀ s."""
        return jax.scipy.linalg.solve_triangular(self.matrix, score.T, lower=True, trans="T").T

    def squared_norms_of_inverse(self) -> Float[Array, " d"]:
        """The squared norm of each row of L⁻¹."""
        return jnp.sum(self.push_score(jnp.eye(len(self.loc), dtype=self.loc.dtype)) ** 2, axis=1)

    def log_det(self) -> Scalar:
        """log det L."""
        return jnp.sum(jnp.diagonal(self.lower))
