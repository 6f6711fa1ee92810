"""The temperature of a tempered target."""

from typing import NamedTuple, Self

from jaxtyping import Array, Float, Scalar

from .._core.checks import as_positive

Point = Float[Array, " d"]


class Temperature(NamedTuple):
    r"""p^β, or p^β N(0, s² I)^(1−β) with a base of standard deviation s = `base_scale`."""

    beta: Scalar
    base_scale: Scalar | None = None

    @classmethod
    def of(cls, inverse_temperature: float | Scalar, base_scale: float | Scalar | None) -> Self:
        """From a user's numbers."""
        scale = None if base_scale is None else as_positive(base_scale, "base_scale")
        return cls(as_positive(inverse_temperature, "inverse_temperature"), scale)

    def of_value(self, log_density: Scalar, x: Point) -> Scalar:
        """β log p(x) − (1 − β) |x|² / 2s²."""
        value = self.beta.astype(log_density.dtype) * log_density
        return value if self.base_scale is None else value - 0.5 * self._pull(x) @ x

    def of_score(self, score: Point, x: Point) -> Point:
        """β ∇ log p(x) − (1 − β) x / s²."""
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

    def _pull(self, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """(1 − β) x / s²: minus the score of the base."""
        return ((1 - self.beta) / self.base_scale**2).astype(x.dtype) * x  # type: ignore[operator]
