"""The door that every objective comes through, so that one loop serves them all."""

import abc

import equinox as eqx
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, Scalar

from ..families import SemiImplicit
from ..targets import Target
from ._records import Aux


class AbstractObjective(eqx.Module):
    """A loss for a semi-implicit family, with whatever inner state it needs (a critic, chains).

    A step is `draw`, `prepare`, then a gradient step on `loss`.
    """

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, target: Target, family: SemiImplicit) -> PyTree:
        """The inner state before the first step. Refuses (`ValueError`) a target or family it cannot serve."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, target: Target, family: SemiImplicit) -> PyTree:
        """All the randomness of one step. It must not depend on parameters: many steps are drawn at once."""

    @abc.abstractmethod
    def prepare(
        self, state: PyTree, draws: PyTree, target: Target, family: SemiImplicit, step: Int[Array, ""]
    ) -> PyTree:
        """The inner state that the loss of this step sees."""

    @abc.abstractmethod
    def loss(
        self, family: SemiImplicit, state: PyTree, draws: PyTree, target: Target, step: Int[Array, ""]
    ) -> tuple[Scalar, Aux]:
        """What is minimised over the family, and numbers to record: `stein_ratio` at least."""

    @property
    @abc.abstractmethod
    def score_evals(self) -> int:
        """Evaluations of the target's score in one step."""

    @property
    def num_minibatches(self) -> int:
        """Minibatches of data that a step draws, of a target that has some: one key each, at once."""
        return 1
