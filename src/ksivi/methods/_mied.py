"""MIED: mollified interaction energy descent."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_count, as_positive
from .._core.closures import Optimizer, as_optimizer
from ..kernels import fold_rows, squared_differences
from ._method import as_start, require_values
from ._particles import AbstractParticles, Points, descent_of

_EXTRA_EXPONENT = 1e-4


class MIED(AbstractParticles):
    r"""Minimises E = log Σᵢⱼ exp[−(s/2) log(‖xᵢ − xⱼ‖² + ε) − ½ (log p(xᵢ) + log p(xⱼ))].

    Here s = d + 1e-4. The distance of a point to itself is set to hᵢ / (1.3 d)^{1/d}, where hᵢ is
    the distance to its nearest neighbour, without gradient. It needs log-density values, and uses
    all rows of the data, not minibatches.

    **Arguments:**

    - `num_particles`: number of particles n.
    - `num_steps`: number of optimiser steps.
    - `optimizer`: any Optax transformation. Default: Adam with learning rate 0.01.
    - `epsilon`: ε.
    - `start`: start of the particles, shape (n, dim). Default: draws of N(0, I).

    ```python
    fit = ksivi.run(jax.random.key(0), target, ksivi.MIED(num_particles=100, num_steps=200))
    ```

    Reference: Li, Liu, Korba, Yurochkin and Solomon, Sampling with Mollified Interaction Energy
    Descent, ICLR 2023.
    """

    start: Array | None
    epsilon: Array
    num_particles: int = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)
    optimizer: Optimizer = eqx.field(static=True)

    def __init__(
        self,
        num_particles: int = 200,
        num_steps: int = 2_000,
        *,
        optimizer: optax.GradientTransformation | None = None,
        epsilon: float | Array = 1e-8,
        start: Points | None = None,
    ):
        self.num_particles = as_count(num_particles, "num_particles")
        self.start = as_start(start, num_particles)
        self.num_steps = as_count(num_steps, "num_steps")
        self.optimizer = as_optimizer(optimizer, "optimizer", optax.adam(0.01))
        self.epsilon = as_positive(epsilon, "epsilon")

    def descent(self, key, x, target):
        return descent_of(lambda x: self._loss_and_score(x, target), x)

    def loss(self, x, target):
        return self._loss_and_score(x, target)[0]

    def _loss_and_score(self, x: Points, target) -> tuple[Scalar, Points]:
        require_values(target, "MIED")
        log_p, score = jax.vmap(target.surrogate)(x)
        return interaction_energy(x, log_p, self.epsilon.astype(x.dtype)), score


def interaction_energy(x: Points, log_p: Float[Array, " n"], epsilon: Scalar) -> Scalar:
    """The mollified interaction energy of the points, computed in tiles."""
    n, dim = x.shape
    exponent = dim + _EXTRA_EXPONENT

    def step(total: Scalar, block: tuple[Array, Array, Array]) -> Scalar:
        index, points, log_densities = block
        squares = squared_differences(points, x)
        itself = index[:, None] == jnp.arange(n)[None, :]
        nearest = jnp.min(
            jnp.where(itself, jnp.inf, lax.stop_gradient(squares)), axis=1, keepdims=True
        )
        # A single particle has no neighbour; any constant will do.
        own = jnp.where(jnp.isfinite(nearest), nearest, 1) * (1.3 * dim) ** (-2 / dim)
        squares = jnp.where(itself, own, squares)
        energies = -0.5 * (
            exponent * jnp.log(squares + epsilon) + log_densities[:, None] + log_p[None, :]
        )
        return jnp.logaddexp(total, jax.nn.logsumexp(energies))

    return fold_rows(step, jnp.asarray(-jnp.inf, x.dtype), (jnp.arange(n), x, log_p), n)
