"""The temperature of a tempered target."""

from typing import NamedTuple, Self

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_positive

Point = Float[Array, " d"]


class Temperature(NamedTuple):
    r"""p^β, or p^β b^(1−β) with a base b of the scale s = `base_scale`.

    The base is N(0, s² I), or a product of Student-t densities with ν = `base_dof`.
    """

    beta: Scalar
    base_scale: Scalar | None = None
    base_dof: Scalar | None = None

    @classmethod
    def of(
        cls,
        inverse_temperature: float | Scalar,
        base_scale: float | Scalar | None,
        base_dof: float | Scalar | None,
    ) -> Self:
        """From a user's numbers."""
        beta = as_positive(inverse_temperature, "inverse_temperature")
        return cls(beta, *as_base(base_scale, base_dof))

    def of_value(self, log_density: Scalar, x: Point) -> Scalar:
        """β log p(x) + (1 − β) log b(x), without the constant of b."""
        value = self.beta.astype(log_density.dtype) * log_density
        return value if self.base_scale is None else value + self._of_base(x)

    def of_score(self, score: Point, x: Point) -> Point:
        """β ∇ log p(x) + (1 − β) ∇ log b(x)."""
        score = self.beta.astype(score.dtype) * score
        return score if self.base_scale is None else score - self._pull(x)

    def undone(self, scores: Float[Array, "n d"], x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The scores of the target itself, from those of the tempered target."""
        return (scores if self.base_scale is None else scores + self._pull(x)) / self.beta

    def then(self, later: Self) -> Self:
        """The temperature of a tempered target that is tempered once more."""
        if self.base_scale is None and later.base_scale is None:
            return type(self)(self.beta * later.beta)
        raise ValueError("a target that is tempered already cannot have a base as well")

    def _of_base(self, x: Point) -> Scalar:
        """(1 − β) log b(x): −x²/2s² or −(ν + 1)/2 log(1 + x²/νs²) in every coordinate."""
        squares = (x / self.base_scale) ** 2  # type: ignore[operator]
        if self.base_dof is not None:
            squares = (self.base_dof + 1) * jnp.log1p(squares / self.base_dof)
        return (-0.5 * (1 - self.beta) * jnp.sum(squares)).astype(x.dtype)

    def _pull(self, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """−(1 − β) ∇ log b(x): (1 − β) times x/s² or (ν + 1) x/(ν s² + x²)."""
        variance = self.base_scale**2  # type: ignore[operator]
        if self.base_dof is not None:
            variance = (self.base_dof * variance + x**2) / (self.base_dof + 1)
        return ((1 - self.beta) * x / variance).astype(x.dtype)


def as_base(
    scale: float | Scalar | None, dof: float | Scalar | None
) -> tuple[Scalar | None, Scalar | None]:
    """A user's `base_scale` and `base_dof`."""
    if scale is None and dof is not None:
        raise ValueError("base_dof needs a base_scale, got none")
    return (
        None if scale is None else as_positive(scale, "base_scale"),
        None if dof is None else as_positive(dof, "base_dof"),
    )
