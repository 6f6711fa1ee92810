"""The posterior given the observed data of a model and a second data set."""

import dataclasses

import equinox as eqx
from jaxtyping import Array, Scalar

from ._model import AbstractModel, NamedDraws, require_model
from ._plates import PlateDensity
from ._pytree import PytreeDensity
from ._target import Target


class GivenBoth(eqx.Module):
    """log p(parameters, observed data, further data): independent data, given the parameters.

    The further data are array leaves, so that other data of the same shapes compile nothing again.
    """

    model: AbstractModel
    data: NamedDraws

    def __call__(self, parameters: dict[str, Array]) -> Scalar:
        further = self.model.log_likelihood_of(self.data, parameters)
        return self.model(parameters) + further  # type: ignore[operator]


def given_both(target: Target, data: NamedDraws) -> Target:
    """The posterior of a model given its observed data and these, all rows of both."""
    model = require_model(target.model, "a second data set")
    if not model.observed():
        raise ValueError(
            "the model must have an observed site to be calibrated around its data: a likelihood that "
            "is a factor cannot be simulated. Write it as a distribution with obs="
        )
    density = target.density.whole if isinstance(target.density, PlateDensity) else target.density
    assert isinstance(density, PytreeDensity)
    both = dataclasses.replace(density, log_density=GivenBoth(model, data))
    return eqx.tree_at(lambda t: t.density, target, both)
