"""A target as it is seen: in other coordinates, and at another temperature."""

import dataclasses
from typing import Any, Self

import equinox as eqx
from jaxtyping import Array, Float, Scalar

from ._affine import Affine, as_affine
from ._density import Point
from ._temperature import Temperature


class AbstractView(eqx.Module):
    """What the coordinates and the temperature of a target make of its log density."""

    coordinates: eqx.AbstractVar[Affine | None]
    temperature: eqx.AbstractVar[Temperature | None]
    dim: eqx.AbstractVar[int]

    def whitened(
        self, loc: Float[Array, " d"], scale: Float[Array, " d"] | Float[Array, "d d"]
    ) -> Self:
        """The same target in coordinates u with x = loc + scale u.

        Posteriors that are trained on it still draw x.

        **Arguments:**

        - `loc`: a centre, such as the mode.
        - `scale`: standard deviations, or a matrix such as a Cholesky factor of a covariance.
        """
        affine = as_affine(loc, scale, self.dim)
        affine = affine if self.coordinates is None else self.coordinates.after(affine)
        return self._replace(coordinates=affine)

    def tempered(
        self,
        inverse_temperature: float | Scalar,
        base_scale: float | Scalar | None = None,
        base_dof: float | Scalar | None = None,
    ) -> Self:
        r"""p(x)^β, or p(x)^β b(x)^(1−β) with a base b.

        p^β has no finite integral if the tails of p are heavy and β is small. With a base it has.

        **Arguments:**

        - `inverse_temperature`: β.
        - `base_scale`: the scale s of the base, in the coordinates in which the target is then
            used. The base is N(0, s² I).
        - `base_dof`: makes the base a product of Student-t densities with so many degrees of
            freedom.
        """
        temperature = Temperature.of(inverse_temperature, base_scale, base_dof)
        before = self.temperature
        return self._replace(temperature=before.then(temperature) if before else temperature)

    def unwhitened(self) -> Self:
        """The same target in the coordinates of the given log density."""
        return self._replace(coordinates=None)

    def to_original(self, u: Point) -> Point:
        """Maps a point from this target's coordinates to those of the given log density."""
        return u if self.coordinates is None else self.coordinates(u)

    def _value_in_view(self, value: Scalar, x: Point) -> Scalar:
        """log p(x) of the view, from that of the given log density at the same point."""
        value = value if self.coordinates is None else value + self.coordinates.log_det()
        return value if self.temperature is None else self.temperature.of_value(value, x)

    def _score_in_view(self, score: Point, x: Point) -> Point:
        """The score of the view, from that of the given log density at the same point."""
        score = score if self.coordinates is None else self.coordinates.pull_back(score)
        return score if self.temperature is None else self.temperature.of_score(score, x)

    def _replace(self, **changes: Any) -> Self:
        """The same target with other fields. Nothing is checked or evaluated again."""
        target = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = changes[field.name] if field.name in changes else getattr(self, field.name)
            object.__setattr__(target, field.name, value)
        return target
