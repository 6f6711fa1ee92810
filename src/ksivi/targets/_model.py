"""What a probabilistic program knows besides its density."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

Draws = dict[str, Array]
"""By name, on the model's own scale, with the draws along the first axis."""


class AbstractModel(eqx.Module):
    """A model behind a target: quantities that follow from its parameters, and the data it was given."""

    @abc.abstractmethod
    def deterministics(self, draws: Draws) -> Draws:
        """Named functions of the parameters, at each draw."""

    @abc.abstractmethod
    def log_likelihood(self, draws: Draws) -> Draws:
        """log p(yᵢ | parameters) of every observation, at each draw, by the name of y."""

    @abc.abstractmethod
    def observed(self) -> Draws:
        """The data, by name."""

    @abc.abstractmethod
    def predictive(self, key: PRNGKeyArray, draws: Draws, *args: Any, **kwargs: Any) -> Draws:
        """New data, one set a draw; `args` and `kwargs` replace the model's own, where there are any."""
