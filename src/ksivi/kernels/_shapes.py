"""The named kernels, each with its bandwidth h."""

import math

import equinox as eqx
import jax.numpy as jnp

from .._core.checks import as_choice
from ._bandwidths import AbstractBandwidth, Median
from ._distances import euclidean, manhattan, riesz_overlap, root, squared_euclidean
from ._kernel import AbstractScaledKernel


class Gaussian(AbstractScaledKernel):
    """k(x, y) = exp(−‖x − y‖² / h)."""

    bandwidth: AbstractBandwidth = eqx.field(default_factory=Median)

    def spread(self, x, y):
        return squared_euclidean(x, y)

    def profile(self, u):
        return jnp.exp(-u)

    def radial(self, r2):
        h = self.h.astype(r2.dtype)
        k = jnp.exp(-r2 / h)
        return k, -k / h, k / h**2


class IMQ(AbstractScaledKernel):
    """The inverse multiquadric k(x, y) = (1 + ‖x − y‖² / h)^(−1/2).

    Its Stein discrepancy controls tails.
    """

    bandwidth: AbstractBandwidth = eqx.field(default_factory=Median)

    def spread(self, x, y):
        return squared_euclidean(x, y)

    def profile(self, u):
        return jnp.reciprocal(jnp.sqrt(1 + u))

    def radial(self, r2):
        h = self.h.astype(r2.dtype)
        base = 1 + r2 / h
        k = jnp.reciprocal(jnp.sqrt(base))
        return k, -k / (2 * h * base), 3 * k / (4 * h**2 * base**2)


class Laplace(AbstractScaledKernel):
    """k(x, y) = exp(−‖x − y‖₁ / h)."""

    bandwidth: AbstractBandwidth = eqx.field(default_factory=Median)

    def spread(self, x, y):
        return manhattan(x, y)

    def profile(self, u):
        return jnp.exp(-u)


class Riesz(AbstractScaledKernel):
    """k(x, y) = (‖x‖₁ + ‖y‖₁ − ‖x − y‖₁) / h. Unbounded and not translation invariant."""

    bandwidth: AbstractBandwidth = eqx.field(default_factory=Median)

    def spread(self, x, y):
        return riesz_overlap(x, y)

    def profile(self, u):
        return u


class Matern(AbstractScaledKernel):
    """The Matérn kernel in s = ‖x − y‖ / h.

    | ν   | k                                 |
    |-----|-----------------------------------|
    | 1/2 | exp(−s)                           |
    | 3/2 | (1 + √3 s) exp(−√3 s)             |
    | 5/2 | (1 + √5 s + 5 s² / 3) exp(−√5 s)  |
    """

    bandwidth: AbstractBandwidth
    nu: float = eqx.field(static=True)

    def __init__(self, bandwidth: AbstractBandwidth | None = None, *, nu: float = 2.5):
        as_choice(nu, "nu", (0.5, 1.5, 2.5))
        self.bandwidth = Median() if bandwidth is None else bandwidth
        self.nu = nu

    def spread(self, x, y):
        return euclidean(x, y)

    def profile(self, u):
        a = math.sqrt(2 * self.nu) * u
        polynomial = {0.5: 1.0, 1.5: 1 + a, 2.5: 1 + a + a**2 / 3}[self.nu]
        return polynomial * jnp.exp(-a)

    def radial(self, r2):
        if self.nu != 2.5:
            raise ValueError(
                f"a Stein kernel needs a twice differentiable kernel: nu must be 2.5, got {self.nu}"
            )
        h = self.h.astype(r2.dtype)
        a = root(5 * r2) / h
        decay = jnp.exp(-a)
        slope = 5 / (6 * h**2)
        return (1 + a + a**2 / 3) * decay, -slope * (1 + a) * decay, slope * 5 / (2 * h**2) * decay
