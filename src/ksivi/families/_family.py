"""The interface of families: distributions that posteriors draw from."""

import abc
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.mixtures import Mixture
from .._core.warped import Warped

_SIZES = (1_024, 16_384)
"""The number of draws is rounded up to these sizes, so that few programs are compiled."""


class AbstractFamily(eqx.Module):
    """A distribution q(x) on ℝ^dim that can be sampled. `dim` is a field or a property."""

    has_density: ClassVar[bool] = True
    """Whether log q(x) and the conditional scores can be computed."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws of x."""

    @abc.abstractmethod
    def log_prob(
        self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int
    ) -> Float[Array, " n"]:
        """An estimate of log q(x). Raises `ValueError` without a density."""

    def draw_size(self, n: int) -> int:
        """How many draws to make if n are needed, so that few sizes are compiled."""
        return n

    def on_host(self) -> Mixture | Warped | None:
        """The same distribution in NumPy, which compiles nothing; None if it has no such form."""
        return None


def few_sizes(n: int) -> int:
    """n, rounded up to one of few sizes."""
    return next((size for size in _SIZES if n <= size), n)
