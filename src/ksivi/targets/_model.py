"""What a probabilistic program knows besides its log density."""

import abc
import warnings
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray, Scalar

NamedDraws = dict[str, Array]
"""Arrays by name, on the model's constrained scale. The first axis runs over the draws."""


class Coordinates(NamedTuple):
    """Names for the axes of arrays.

    **Attributes:**

    - `labels`: those of each dimension, one for each place along it.
    - `dims`: the dimensions of each variable. An axis without a name has None.
    """

    labels: dict[str, Any]
    dims: dict[str, tuple[str | None, ...]]


class AbstractModel(eqx.Module):
    """A model behind a target: its deterministic quantities, its likelihood and its data."""

    @abc.abstractmethod
    def explain(self, parameters: dict[str, Array]) -> str:
        """Which sites have no finite log density at these unconstrained parameters, and why."""

    @abc.abstractmethod
    def deterministics(self, draws: NamedDraws) -> NamedDraws:
        """Named functions of the parameters, at each draw."""

    @abc.abstractmethod
    def log_likelihood(self, draws: NamedDraws) -> NamedDraws:
        """log p(yᵢ | parameters) of every observation, at each draw, by the name of y."""

    @abc.abstractmethod
    def observed(self) -> NamedDraws:
        """The observed data, by name."""

    @abc.abstractmethod
    def predictive(
        self, key: PRNGKeyArray, draws: NamedDraws, *args: Any, **kwargs: Any
    ) -> NamedDraws:
        """One new data set per draw. `args` and `kwargs` replace those that the model was given."""

    @abc.abstractmethod
    def prior_predictive(self, key: PRNGKeyArray, n: int) -> tuple[NamedDraws, NamedDraws]:
        """n draws from the prior: the parameters with the deterministics, and the observed sites.

        Each draw of the observed sites is a data set with the shapes of the observed data.
        """

    @abc.abstractmethod
    def improper(self) -> tuple[str, ...]:
        """The parameters whose prior has no finite integral: it gives no draws and no evidence."""

    def factors(self) -> tuple[str, ...]:
        """The terms of the log density that simulations leave out silently. Default: none."""
        return ()

    def coordinates(self) -> Coordinates:
        """The dimensions of parameters and data. Default: none has a name."""
        return Coordinates({}, {})

    def log_likelihood_of(self, data: NamedDraws, parameters: dict[str, Array]) -> Scalar:
        """log p(data | parameters) of other data of the same shapes, at unconstrained parameters.

        Models of which this is not known raise `ValueError`.
        """
        raise ValueError(
            "the model must be a NumPyro model to be given a second data set: write a function of "
            "the simulated data that returns the target of both data sets"
        )


def require_model(model: AbstractModel | None, name: str) -> AbstractModel:
    """The model. Raises `ValueError` for a target that is not made from one."""
    if model is None:
        raise ValueError(
            f"{name} needs the prior of a probabilistic program, but this target is only a log "
            "density: make it with ksivi.from_numpyro or ksivi.from_pymc, or draw the parameters "
            "and the data with your own functions"
        )
    return model


def require_proper(model: AbstractModel) -> None:
    """Raises `ValueError` if there are parameters with an improper prior."""
    if names := ", ".join(map(repr, model.improper())):
        raise ValueError(
            f"the prior of {names} is improper and cannot be drawn from: give it a distribution "
            "with a finite integral, such as a wide normal distribution"
        )


def warn_of_factors(model: AbstractModel, stacklevel: int) -> None:
    """Warns of terms of the log density that simulations leave out.

    **Arguments:**

    - `stacklevel`: whose the warning is, as for a `warnings.warn` of the caller.
    """
    if text := ", ".join(map(repr, model.factors())):
        warnings.warn(
            f"the factor {text} is part of the log density, but it cannot be simulated: prior "
            "draws leave it out",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
