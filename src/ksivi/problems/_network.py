"""A regression network with one hidden layer: its weights in one vector, and its densities."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.numerics import full_precision
from ._regression import Units

HIDDEN = 50

Weights = Float[Array, " d"]
Batch = dict[str, Array]


def num_weights(num_inputs: int) -> int:
    """The size of W₁ (p, 50), b₁ (50), W₂ (50) and b₂ (1)."""
    return (num_inputs + 2) * HIDDEN + 1


def forward(weights: Weights, inputs: Float[Array, "n p"]) -> Float[Array, " n"]:
    """relu(inputs W₁ + b₁) W₂ + b₂, with normalised inputs and outputs."""
    ends = [inputs.shape[1] * HIDDEN + k * HIDDEN for k in range(3)]
    w1, b1, w2, b2 = jnp.split(weights, ends)
    with full_precision():
        hidden = jax.nn.relu(inputs @ w1.reshape(-1, HIDDEN) + b1[None])
        return hidden @ w2 + b2


def draw_weights(key: PRNGKeyArray, num_inputs: int) -> Weights:
    """A starting point of a particle: weights N(0, 1/(fan-in + 1)), biases 0."""
    first, second = jax.random.split(key)
    w1 = jax.random.normal(first, (num_inputs * HIDDEN,)) * (num_inputs + 1) ** -0.5
    w2 = jax.random.normal(second, (HIDDEN,)) * (HIDDEN + 1) ** -0.5
    return jnp.concatenate([w1, jnp.zeros(HIDDEN), w2, jnp.zeros(1)])


def log_prior(weights: Weights, log_lambda: Scalar) -> Scalar:
    """log N(w; 0, I/λ) without its constant in λ."""
    return 0.5 * (len(weights) * log_lambda - jnp.exp(log_lambda) * jnp.sum(weights**2))


def log_noise(residuals: Float[Array, " n"], log_gamma: Scalar) -> Scalar:
    """Σᵢ log N(rᵢ; 0, 1/γ) without its constant in γ."""
    return 0.5 * (len(residuals) * log_gamma - jnp.exp(log_gamma) * jnp.sum(residuals**2))


class Prior(eqx.Module):
    """w ~ N(0, I/λ)."""

    log_lambda: Scalar

    def __call__(self, weights: Weights) -> Scalar:
        return log_prior(weights, self.log_lambda)


class Likelihood(eqx.Module):
    """y ~ N(f(x; w), 1/γ), with x and y normalised."""

    log_gamma: Scalar

    def __call__(self, weights: Weights, batch: Batch) -> Scalar:
        return log_noise(batch["y"] - forward(weights, batch["x"]), self.log_gamma)


class Predictor(eqx.Module):
    """The predictions of one weight vector, from inputs to outputs in original units."""

    units: Units

    def __call__(self, weights: Weights, inputs: Float[Array, "n p"]) -> Float[Array, " n"]:
        return self.units.original_outputs(forward(weights, self.units.inputs(inputs)))
