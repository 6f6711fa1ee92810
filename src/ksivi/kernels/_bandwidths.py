"""Bandwidths h: fixed, or the median of the quantity that h divides."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._core.checks import as_flag, as_positive
from ._median import lower_median
from ._pairwise import Pairwise


class AbstractBandwidth(eqx.Module):
    """A rule that gives a kernel's bandwidth h for the samples."""

    @abc.abstractmethod
    def resolve(
        self, spread: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int
    ) -> "Fixed":
        """The bandwidth for these samples. `group` is that of `AbstractKernel.resolve`."""

    def fixed_value(self) -> Array:
        """h, if it does not depend on the samples; otherwise raises `ValueError`."""
        raise ValueError(
            f"the bandwidth {self} depends on the samples: call kernel.resolve(x, y) first"
        )


class Fixed(AbstractBandwidth):
    """A bandwidth that does not depend on the samples.

    Only with a fixed bandwidth are losses unbiased estimates of KSD².

    ```python
    kernel = ksivi.kernels.Gaussian(ksivi.kernels.Fixed(2.0))
    ```
    """

    h: Array

    def __init__(self, h: float | Array):
        self.h = as_positive(h, "h")

    def resolve(self, spread, x, y, group):
        return self

    def fixed_value(self):
        return self.h


class Median(AbstractBandwidth):
    r"""The median rule, h = scale · med / log(N + 1).

    med is the lower median, sorted[(M − 1)//2], of the quantity that h divides. It is taken over
    the cross pairs of two samples, or the off-diagonal pairs of one sample. N is the size of the
    first sample. If the median is 0, h = 1.

    The gradient flows through the median, which makes the kernel scale-invariant. With
    `stop_gradient=True` training can lower the loss by pushing the samples apart without limit, and
    in our measurements it does.

    **Arguments:**

    - `stop_gradient`: whether to treat h as a constant when differentiating.
    - `all_pairs`: whether to include the zero distances of a sample to itself, as the authors'
        released code does.
    - `scale`: a factor on h, for sums of kernels over several scales.

    ```python
    kernel = ksivi.kernels.IMQ(ksivi.kernels.Median(stop_gradient=True))
    ```
    """

    scale: Array
    stop_gradient: bool = eqx.field(static=True)
    all_pairs: bool = eqx.field(static=True)

    def __init__(
        self, *, stop_gradient: bool = False, all_pairs: bool = False, scale: float | Array = 1.0
    ):
        self.scale = as_positive(scale, "scale")
        self.stop_gradient = as_flag(stop_gradient, "stop_gradient")
        self.all_pairs = as_flag(all_pairs, "all_pairs")

    def resolve(self, spread, x, y, group):
        group = 0 if self.all_pairs else group
        median = lower_median(spread, x, y, group)
        h = jnp.where(median > 0, self.scale * median / math.log(len(x) + 1), 1)
        return Fixed(lax.stop_gradient(h) if self.stop_gradient else h)
