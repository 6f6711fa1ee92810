"""The squared error of the mean prediction, to start a regression posterior near the data."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.checks import as_array, as_count, as_floats
from ._objective import AbstractObjective, auxiliary

Predict = Callable[[Float[Array, " d"], Float[Array, "n p"]], Float[Array, " n"]]


class PredictionDraws(NamedTuple):
    """The randomness of one step: mixing variables, noise, and data rows for the Stein ratio."""

    z: Float[Array, "s k"]
    xi: Float[Array, "s d"]
    rows: Int[Array, " b"] | None


class MeanPrediction(AbstractObjective):
    r"""Minimises 1/n Σₙ (yₙ − f̄ₙ)² with f̄ₙ = 1/s Σₛ f(xₛ, inputₙ) and xₛ drawn from the family.

    Use it to start other objectives. It does not approximate the target: it trains the mean
    prediction, and the spread of q only as far as that changes the mean. The target is only used
    for the recorded Stein ratio.

    **Arguments:**

    - `predict`: (x, inputs) ↦ one output per row of inputs, for one draw x in the target's original
        coordinates.
    - `inputs`, `outputs`: training data, one row per observation. Do not include test data.
    - `num_samples`: s, the number of draws of x per step.

    ```python
    predict = lambda x, inputs: inputs @ x
    objective = ksivi.MeanPrediction(predict, inputs=jnp.ones((20, 2)), outputs=jnp.zeros(20))
    ```
    """

    predict: Predict
    inputs: Float[Array, "n p"]
    outputs: Float[Array, " n"]
    num_samples: int = eqx.field(static=True)

    def __init__(
        self,
        predict: Predict,
        inputs: Float[Array, "n p"],
        outputs: Float[Array, " n"],
        num_samples: int = 100,
    ):
        if not callable(predict):
            raise ValueError(f"predict must be a function of a draw and inputs, got {predict!r}")
        self.predict = predict
        self.inputs, self.outputs = as_array(inputs, "inputs"), as_floats(outputs, "outputs")
        if (
            self.outputs.ndim != 1
            or self.inputs.shape[:1] != self.outputs.shape
            or not len(self.outputs)
        ):
            raise ValueError(
                "inputs and outputs must have one row per observation, and outputs one number per "
                f"row, got shapes {self.inputs.shape} and {self.outputs.shape}"
            )
        self.num_samples = as_count(num_samples, "num_samples")

    def init(self, key, target, family) -> None:
        shape = eqx.filter_eval_shape(
            self.predict, jnp.zeros(family.dim, family.dtype), self.inputs
        ).shape
        if shape != self.outputs.shape:
            raise ValueError(
                f"predict must return {len(self.outputs)} outputs, one per row of inputs, got "
                f"shape {shape}"
            )

    def draw(self, key, target, family) -> PredictionDraws:
        noise_key, rows_key = jax.random.split(key)
        z, xi = family.noise(noise_key, self.num_samples)
        return PredictionDraws(z, xi, target.draw_rows(rows_key))

    def loss(self, family, state, draws, target, step):
        x, _ = family.transport((draws.z, draws.xi))
        predict = lambda x: self.predict(target.to_original(x), self.inputs)  # noqa: E731
        mean = jnp.mean(jax.vmap(predict)(x), axis=0)
        score = jax.vmap(target.on_rows(draws.rows).score)(jax.lax.stop_gradient(x))
        return jnp.mean((self.outputs - mean) ** 2), auxiliary(x, score, x, None)

    @property
    def score_evals(self) -> int:
        return self.num_samples
