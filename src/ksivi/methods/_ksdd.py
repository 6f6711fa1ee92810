"""KSDD: kernel Stein discrepancy descent."""

import equinox as eqx
import jax
import optax
from jaxtyping import Array

from .._core.checks import as_count
from ..kernels import AbstractKernel, Fixed, Gaussian, as_smooth_kernel, stein_mean
from ._method import as_start
from ._particles import (
    AbstractParticles,
    Optimizer,
    Points,
    as_optimizer,
    descent_of,
    resolve,
)


class KSDD(AbstractParticles):
    r"""Minimises KSD² = 1/n² Σᵢⱼ uₚ(xᵢ, xⱼ) over the particles, with the Stein kernel uₚ.

    See `ksivi.metrics.ksd`. It uses all rows of the data, not minibatches.

    **Arguments:**

    - `num_particles`: number of particles n.
    - `num_steps`: number of optimiser steps.
    - `optimizer`: any Optax transformation. Default: `optax.lbfgs()`. Each step of its line search
        counts as n score evaluations.
    - `kernel`: default: exp(−r²/2).
    - `start`: start of the particles, shape (n, dim). Default: draws of N(0, I).

    ```python
    fit = ksivi.run(jax.random.key(0), target, ksivi.KSDD(num_particles=100, num_steps=50))
    ```

    Reference: Korba, Aubin-Frankowski, Majewski and Ablin, Kernel Stein Discrepancy Descent, ICML
    2021.
    """

    start: Array | None
    kernel: AbstractKernel
    num_particles: int = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)
    optimizer: Optimizer = eqx.field(static=True)

    def __init__(
        self,
        num_particles: int = 200,
        num_steps: int = 200,
        *,
        optimizer: optax.GradientTransformation | None = None,
        kernel: AbstractKernel | None = None,
        start: Points | None = None,
    ):
        self.num_particles = as_count(num_particles, "num_particles")
        self.start = as_start(start, num_particles)
        self.num_steps = as_count(num_steps, "num_steps")
        self.optimizer = as_optimizer(optimizer, optax.lbfgs())
        self.kernel = as_smooth_kernel(kernel, Gaussian(Fixed(2.0)))

    def descent(self, key, x, target):
        return descent_of(lambda x: self._loss_and_score(x, target), x)

    def loss(self, x, target):
        return self._loss_and_score(x, target)[0]

    def _loss_and_score(self, x, target):
        score = jax.vmap(target.score)(x)
        return stein_mean(resolve(self.kernel, x), x, score, group=0), score
