"""The interface of kernels: bandwidths are resolved from samples, then a Gram matrix."""

import abc
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_floats, describe
from ._bandwidths import AbstractBandwidth

Radial = tuple[Float[Array, "n m"], Float[Array, "n m"], Float[Array, "n m"]]


class AbstractKernel(eqx.Module):
    """A positive semi-definite kernel k(x, y)."""

    @abc.abstractmethod
    def resolve(self, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int = 0) -> Self:
        """The same kernel with every bandwidth fixed from the samples.

        **Arguments:**

        - `x`, `y`: two samples, or the same sample twice.
        - `group`: 0 for two samples. For one sample, the number of consecutive points that are not
            paired with each other; 1 leaves out the diagonal only.
        """

    @abc.abstractmethod
    def gram(self, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        """k(xᵢ, yⱼ) for fixed bandwidths."""

    @abc.abstractmethod
    def radial(self, r2: Float[Array, "n m"]) -> Radial:
        """k and its first two derivatives as functions of r² = ‖x − y‖², for Stein kernels.

        Raises `ValueError` if the kernel is not a smooth function of r².
        """

    def __call__(self, x: Float[Array, " d"], y: Float[Array, " d"]) -> Scalar:
        """k(x, y) at two points, for fixed bandwidths."""
        return self.gram(x[None], y[None])[0, 0]


def as_kernel(kernel: AbstractKernel | None, default: AbstractKernel) -> AbstractKernel:
    """The given kernel, or the default for None. Raises `ValueError` for anything else."""
    if not isinstance(kernel, AbstractKernel | None):
        raise ValueError(
            f"kernel must be one of ksivi.kernels, such as ksivi.kernels.Gaussian(), got {kernel!r}"
        )
    return default if kernel is None else kernel


def as_smooth_kernel(kernel: AbstractKernel | None, default: AbstractKernel) -> AbstractKernel:
    """The same, smooth enough for Stein's operator. Raises `ValueError` if it is not."""
    kernel = as_kernel(kernel, default)
    point = jnp.zeros((1, 1))
    eqx.filter_eval_shape(lambda: kernel.resolve(point, point).radial(point))
    return kernel


class AbstractScaledKernel(AbstractKernel):
    """k(x, y) = profile(spread(x, y) / h): every kernel of this library except sums."""

    bandwidth: eqx.AbstractVar[AbstractBandwidth]

    @abc.abstractmethod
    def spread(self, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        """The quantity that h divides."""

    @abc.abstractmethod
    def profile(self, u: Float[Array, "n m"]) -> Float[Array, "n m"]:
        """The kernel as a function of spread / h."""

    def __check_init__(self):
        if not isinstance(self.bandwidth, AbstractBandwidth):
            raise ValueError(f"bandwidth must be Median() or Fixed(h), got {self.bandwidth!r}")

    def resolve(self, x, y, group=0):
        fixed = self.bandwidth.resolve(self.spread, x, y, group)
        return eqx.tree_at(
            lambda k: k.bandwidth, self, fixed, is_leaf=lambda b: isinstance(b, AbstractBandwidth)
        )

    def gram(self, x, y):
        spread = self.spread(x, y)
        return self.profile(spread / self.h.astype(spread.dtype))

    def radial(self, r2):
        raise ValueError(
            "a Stein kernel needs a twice differentiable function of ‖x − y‖, such as Gaussian(), "
            f"IMQ() or Matern(nu=2.5); {type(self).__name__} is not one"
        )

    @property
    def h(self) -> Array:
        """The bandwidth, if it is fixed."""
        return self.bandwidth.fixed_value()


class Sum(AbstractKernel):
    """A weighted sum Σₖ wₖ kₖ(x, y) of kernels, each with its own bandwidth.

    ```python
    scales = [ksivi.kernels.Median(scale=s) for s in (0.1, 1.0, 10.0)]
    kernel = ksivi.kernels.Sum([ksivi.kernels.Gaussian(h) for h in scales])
    ```
    """

    kernels: tuple[AbstractKernel, ...]
    weights: Float[Array, " k"]

    def __init__(self, kernels, weights=None):
        is_list = isinstance(kernels, list | tuple)
        if not is_list or not all(isinstance(k, AbstractKernel) for k in kernels):
            raise ValueError(f"kernels must be a list of kernels, got {describe(kernels)}")
        self.kernels = tuple(kernels)
        weights = jnp.ones(len(self.kernels)) if weights is None else as_floats(weights, "weights")
        if not self.kernels or weights.shape != (len(self.kernels),):
            raise ValueError(
                f"weights must be one number for each of {len(self.kernels)} kernels, got shape "
                f"{weights.shape}"
            )
        is_known = not isinstance(weights, jax.core.Tracer)
        if is_known and not bool(jnp.all((weights >= 0) & jnp.isfinite(weights))):
            raise ValueError(f"weights must be finite and not negative, got {weights}")
        self.weights = weights

    def resolve(self, x, y, group=0):
        resolved = tuple(kernel.resolve(x, y, group) for kernel in self.kernels)
        return eqx.tree_at(lambda k: k.kernels, self, resolved)

    def gram(self, x, y):
        return self._weigh([kernel.gram(x, y) for kernel in self.kernels])

    def radial(self, r2):
        parts = [kernel.radial(r2) for kernel in self.kernels]
        return tuple(self._weigh(part) for part in zip(*parts, strict=True))

    def _weigh(self, parts):
        return sum(w.astype(part.dtype) * part for w, part in zip(self.weights, parts, strict=True))
