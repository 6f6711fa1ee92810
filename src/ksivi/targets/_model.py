"""What a probabilistic program knows besides its log density."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

NamedDraws = dict[str, Array]
"""Arrays by name, on the model's constrained scale. The first axis runs over the draws."""


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
