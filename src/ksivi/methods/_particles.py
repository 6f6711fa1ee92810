"""The base of the particle methods: points that an optimiser moves."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from .._core.closures import Structural
from ..kernels import AbstractKernel
from ..results import ParticleDiagnostics
from ..targets import Target
from ._method import AbstractMethod, Verdict, equal_except, state_records

Points = Float[Array, "n d"]
Optimizer = Structural[optax.GradientTransformation]


class Particles(NamedTuple):
    """The positions of the particles, and the state of the optimiser."""

    x: Points
    optimizer: PyTree


class Descent(NamedTuple):
    """The loss at the points, its gradient (or a direction in its place), and the scores."""

    loss: Scalar
    gradient: Points
    score: Points


class AbstractParticles(AbstractMethod):
    """Particles that an Optax optimiser moves."""

    num_particles: eqx.AbstractVar[int]
    optimizer: eqx.AbstractVar[Optimizer]

    @abc.abstractmethod
    def descent(self, key: PRNGKeyArray, x: Points, target: Target) -> Descent:
        """The loss, its gradient and the scores at the points."""

    @abc.abstractmethod
    def loss(self, x: Points, target: Target) -> Scalar:
        """The loss at other points, for optimisers with a line search."""

    @property  # type: ignore[misc]
    def num_points(self) -> int:  # type: ignore[override]
        return self.num_particles

    def init(self, x, target):
        return Particles(x, self.optimizer.value.init(x))

    def step(self, key, state, target, step):
        loss, gradient, score = self.descent(key, state.x, target)
        update = optax.with_extra_args_support(self.optimizer.value).update
        updates, optimizer = update(
            gradient,
            state.optimizer,
            state.x,
            value=loss,
            grad=gradient,
            value_fn=lambda x: self.loss(x, target),
        )
        searched = optax.tree.get(optimizer, "num_linesearch_steps", 0)
        records = state_records(state.x, score, loss, len(state.x) * (1 + searched))
        return Particles(optax.apply_updates(state.x, updates), optimizer), records

    def positions(self, state):
        return state.x

    def same_but_longer(self, shorter):
        return equal_except(self, shorter, "num_steps")

    def keeps(self, steps):
        return np.zeros(len(steps), bool)

    def verdict(self, kept, history):
        ratio = history.get("stein_ratio", np.zeros(0))[-1:]
        found = float(ratio[0]) + 0.0 if ratio.size else float("nan")
        return Verdict(None, False, ParticleDiagnostics(found))


def descent_of(loss_and_score: Callable[[Points], tuple[Scalar, Points]], x: Points) -> Descent:
    """The `Descent` of a function that returns the loss and the scores."""
    (loss, score), gradient = jax.value_and_grad(loss_and_score, has_aux=True)(x)
    return Descent(loss, gradient, score)


def as_optimizer(
    optimizer: optax.GradientTransformation | None, default: optax.GradientTransformation
) -> Optimizer:
    optimizer = default if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(
            "optimizer must be an Optax transformation, such as optax.adam(1e-2), "
            f"got {optimizer!r}"
        )
    return Structural(optimizer)


def resolve(kernel: AbstractKernel, x: Points) -> AbstractKernel:
    """The kernel with its bandwidth from the off-diagonal pairs. For a single particle, h = 1."""
    return kernel.resolve(x, x, min(1, len(x) - 1))
