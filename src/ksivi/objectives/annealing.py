"""Annealing of the target."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Scalar

from .._checks import as_positive


class Annealing(eqx.Module):
    r"""The inverse temperature β(t) = min(1, start + t / horizon).

    The paper's runs use start = 0.1 and a horizon of half the steps.

    ```python
    objective = ksivi.KSIVI(num_samples=100, annealing=ksivi.Annealing(start=0.1, horizon=10_000))
    ```
    """

    start: Array
    horizon: Array

    def __init__(self, *, start: float | Array = 0.1, horizon: float | Array):
        self.start = as_positive(start, "start")
        self.horizon = as_positive(horizon, "horizon")

    def __call__(self, step: Int[Array, ""]) -> Scalar:
        return jnp.minimum(1, self.start + step / self.horizon)
