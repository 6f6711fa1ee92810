"""SVGD: Stein variational gradient descent."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from .._core.checks import as_count
from ..kernels import AbstractKernel, Gaussian, as_smooth_kernel, stein_direction
from ._method import as_start
from ._particles import (
    AbstractParticles,
    Descent,
    Optimizer,
    Points,
    as_optimizer,
    resolve,
)


class SVGD(AbstractParticles):
    r"""Moves particles along φ(x) = 1/n Σⱼ [k(xⱼ, x) s_p(xⱼ) + ∇_{xⱼ} k(xⱼ, x)].

    With data minibatches, each step draws one. The loss in the history is the mean of ‖φ‖².
    Particles that start at the same point stay together. (BlackJAX's SVGD is not used: it stores n
    × n × d numbers and divides by a median that is 0 for one particle.)

    **Arguments:**

    - `num_particles`: number of particles n.
    - `num_steps`: number of optimiser steps.
    - `optimizer`: any Optax transformation without a line search. Default: Adam with learning rate
        0.05.
    - `kernel`: a smooth function of ‖x − y‖. Default: Gaussian with the median bandwidth.
    - `start`: start of the particles, shape (n, dim). Default: draws of N(0, I).

    ```python
    fit = ksivi.run(jax.random.key(0), target, ksivi.SVGD(num_particles=100, num_steps=200))
    ```

    Reference: Liu and Wang, Stein Variational Gradient Descent, NeurIPS 2016.
    """

    start: Array | None
    kernel: AbstractKernel
    num_particles: int = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)
    optimizer: Optimizer = eqx.field(static=True)

    def __init__(
        self,
        num_particles: int = 200,
        num_steps: int = 1_000,
        *,
        optimizer: optax.GradientTransformation | None = None,
        kernel: AbstractKernel | None = None,
        start: Points | None = None,
    ):
        self.num_particles = as_count(num_particles, "num_particles")
        self.start = as_start(start, num_particles)
        self.num_steps = as_count(num_steps, "num_steps")
        self.optimizer = as_optimizer(optimizer, optax.adam(0.05))
        self.kernel = as_smooth_kernel(kernel, Gaussian())

    def descent(self, key, x, target):
        target = target.minibatch(key)
        score = jax.vmap(target.score)(x)
        direction = stein_direction(resolve(self.kernel, x), x, score)
        return Descent(jnp.mean(jnp.sum(direction**2, axis=1)), -direction, score)

    def loss(self, x, target):
        raise ValueError("SVGD has no loss to search along: use an optimizer without a line search")
