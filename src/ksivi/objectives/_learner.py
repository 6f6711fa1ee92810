"""Networks that are trained beside the family, such as a critic."""

from collections.abc import Callable
from typing import NamedTuple, Self

import jax
import optax
from jax.typing import DTypeLike
from jaxtyping import PyTree, Scalar

from .._core.closures import Optimizer


class Learner(NamedTuple):
    """A network and the state of its optimizer: the inner state of an objective."""

    network: PyTree
    optimizer: PyTree

    @classmethod
    def of(cls, network: PyTree, optimizer: Optimizer, dtype: DTypeLike) -> Self:
        """The network in this precision, before its first step."""
        network = jax.tree.map(lambda leaf: leaf.astype(dtype), network)
        return cls(network, optimizer.value.init(network))

    def descended(self, loss: Callable[[PyTree], Scalar], optimizer: Optimizer) -> Self:
        """The same after one step of its optimizer on a loss of the network."""
        gradient = jax.grad(loss)(self.network)
        updates, state = optimizer.value.update(gradient, self.optimizer, self.network)
        return type(self)(optax.apply_updates(self.network, updates), state)
