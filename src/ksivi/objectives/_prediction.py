"""The error of a family's mean prediction, to start a regression's posterior near the data."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.checks import as_array, as_count, as_floats
from ._objective import AbstractObjective
from ._records import record

Predict = Callable[[Float[Array, " d"], Float[Array, "n p"]], Float[Array, " n"]]


class Draws(NamedTuple):
    """The randomness of one step: mixing variables, noise, and rows of data for the scores that are recorded."""

    z: Float[Array, "s k"]
    xi: Float[Array, "s d"]
    rows: Int[Array, " b"] | None


class MeanPrediction(AbstractObjective):
    r"""Minimises 1/n Σₙ (yₙ − f̄ₙ)², f̄ₙ = 1/s Σₛ f(xₛ, inputₙ) with xₛ of the family: where its mean meets the data.

    A start for the other objectives, not an approximation of the target: the spread of q is left as it is, but for
    what it does to the mean. The target serves the recorded Stein ratio alone.

    **Arguments:**

    - `predict`: (x, inputs) ↦ one output a row of inputs, for one draw x in the target's original coordinates.
    - `inputs`, `outputs`: data, one row an observation; none that are to judge the result.
    - `num_samples`: s, the draws of x a step.

    ```python
    predict = lambda x, inputs: inputs @ x
    objective = ksivi.MeanPrediction(predict, inputs=jnp.ones((20, 2)), outputs=jnp.zeros(20), num_samples=100)
    ```
    """

    predict: Predict
    inputs: Float[Array, "n p"]
    outputs: Float[Array, " n"]
    num_samples: int = eqx.field(static=True)

    def __init__(
        self, predict: Predict, inputs: Float[Array, "n p"], outputs: Float[Array, " n"], num_samples: int = 100
    ):
        if not callable(predict):
            raise ValueError(f"predict must be a function of a draw and inputs, got {predict!r}")
        self.predict = predict
        self.inputs, self.outputs = as_array(inputs, "inputs"), as_floats(outputs, "outputs")
        if self.outputs.ndim != 1 or self.inputs.shape[:1] != self.outputs.shape or not len(self.outputs):
            raise ValueError(
                "inputs and outputs must have a row each an observation, and outputs one number a row, "
                f"got shapes {self.inputs.shape} and {self.outputs.shape}"
            )
        self.num_samples = as_count(num_samples, "num_samples")

    def init(self, key, target, family) -> None:
        shape = eqx.filter_eval_shape(self.predict, jnp.zeros(family.dim, family.dtype), self.inputs).shape
        if shape != self.outputs.shape:
            raise ValueError(f"predict must return {len(self.outputs)} outputs, one a row of inputs, got shape {shape}")

    def draw(self, key, target, family) -> Draws:
        noise_key, rows_key = jax.random.split(key)
        z, xi = family.noise(noise_key, self.num_samples)
        return Draws(z, xi, target.draw_rows(rows_key))

    def prepare(self, state, draws, target, family, step):
        return state

    def loss(self, family, state, draws, target, step):
        x, _ = family.transport((draws.z, draws.xi))
        predict = lambda x: self.predict(target.to_original(x), self.inputs)  # noqa: E731
        mean = jnp.mean(jax.vmap(predict)(x), axis=0)
        score = jax.vmap(target.on_rows(draws.rows).score)(jax.lax.stop_gradient(x))
        return jnp.mean((self.outputs - mean) ** 2), record(x, score, x, None)

    @property
    def score_evals(self) -> int:
        return self.num_samples
