"""A problem: a target, its truth, its name."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from ..targets import Target


class AbstractProblem(eqx.Module):
    """A target with a way to know the truth about it."""

    name: eqx.AbstractVar[str]
    target: eqx.AbstractVar[Target]

    @abc.abstractmethod
    def reference(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws of the truth."""
