"""Schedules: numbers that depend on the step.

They are modules, so that equal schedules do not compile again.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Scalar

from .._core.checks import as_positive
from ..targets import Target, Temperature, as_base

Schedule = Callable[[Int[Array, ""]], Scalar]
"""step ↦ number."""


class Annealing(eqx.Module):
    r"""The inverse temperature β(t) = min(1, start + t / horizon).

    The target of a step is p^β, or p^β b^(1−β) with a base b. The paper uses start = 0.1, a horizon
    of half the steps, and no base.

    A density with heavy tails needs a base: if p falls as |x|^(−a) along a line, p^β has no finite
    integral for β ≤ 1/a, and draws run away. A Gaussian base cuts such tails off, and they are slow
    to grow again; one with heavy tails keeps them.

    **Arguments:**

    - `start`: β at step 0.
    - `horizon`: the number of steps in which β would grow by 1.
    - `base_scale`: the scale s of a base N(0, s² I). Default: no base.
    - `base_dof`: makes the base a product of Student-t densities with so many degrees of freedom.

    ```python
    objective = ksivi.KSIVI(num_samples=100, annealing=ksivi.Annealing(start=0.1, horizon=10_000))
    ```
    """

    start: Array
    horizon: Array
    base_scale: Array | None
    base_dof: Array | None

    def __init__(
        self,
        *,
        start: float | Array = 0.1,
        horizon: float | Array,
        base_scale: float | Array | None = None,
        base_dof: float | Array | None = None,
    ):
        self.start = as_positive(start, "start")
        self.horizon = as_positive(horizon, "horizon")
        self.base_scale, self.base_dof = as_base(base_scale, base_dof)

    def __call__(self, step: Int[Array, ""]) -> Scalar:
        return jnp.minimum(1, self.start + step / self.horizon)


class Decay(eqx.Module):
    r"""The weight start · factor^⌊t / every⌋.

    ```python
    decay = ksivi.Decay(start=1.0, factor=1 / 1.004, every=100)
    objective = ksivi.SIVISM(num_samples=100, score_weight=decay)
    ```
    """

    start: Array
    factor: Array
    every: Array

    def __init__(
        self, *, start: float | Array = 1.0, factor: float | Array, every: int | Array = 1
    ):
        self.start = as_positive(start, "start")
        self.factor = as_positive(factor, "factor")
        self.every = as_positive(every, "every")

    def __call__(self, step: Int[Array, ""]) -> Scalar:
        return self.start * self.factor ** jnp.floor(step / self.every)


def as_schedule(schedule: Schedule | None, name: str, example: str) -> Schedule | None:
    """The given schedule. Raises `ValueError` unless it is a function or None."""
    if schedule is not None and not callable(schedule):
        raise ValueError(
            f"{name} must be a function of the step, such as {example}, got {schedule!r}"
        )
    return schedule


def anneal(
    target: Target, annealing: Schedule | None, step: Int[Array, ""]
) -> tuple[Target, Temperature | None]:
    """The target at this step, and its temperature, or None without annealing."""
    if annealing is None:
        return target, None
    base = (getattr(annealing, name, None) for name in ("base_scale", "base_dof"))
    heat = Temperature(annealing(step), *base)
    return target.tempered(*heat), heat
