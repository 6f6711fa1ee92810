"""The joint density of the weights and the hyper-parameters of a network: θ = (w, log γ, log λ)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ._network import Batch, Weights, forward, log_noise, log_prior

_RATE = 0.1
_ROWS_FOR_NOISE = 1_000

Joint = Float[Array, " e"]


def joint_log_prior(theta: Joint) -> Scalar:
    """w ~ N(0, I/λ) and γ, λ ~ Gamma(1, 0.1), as a density of w, log γ and log λ with the Jacobians
    γ and λ."""
    weights, log_precisions = theta[:-2], theta[-2:]
    return log_prior(weights, theta[-1]) + jnp.sum(log_precisions - _RATE * jnp.exp(log_precisions))


def joint_log_likelihood(theta: Joint, batch: Batch) -> Scalar:
    """y ~ N(f(x; w), 1/γ), with x and y normalised."""
    return log_noise(batch["y"] - forward(theta[:-2], batch["x"]), theta[-2])


def draw_joint(
    key: PRNGKeyArray, weights: Float[Array, "n d"], batch: Batch
) -> Float[Array, "n e"]:
    """Starting points as in the code of SVGD's authors: γ from the errors of the weights, λ ~
    Gamma(1, scale 0.1)."""
    some = jax.tree.map(lambda column: column[:_ROWS_FOR_NOISE], batch)

    def log_gamma(one: Weights) -> Scalar:
        return -jnp.log(jnp.mean((some["y"] - forward(one, some["x"])) ** 2))

    log_lambda = jnp.log(_RATE * jax.random.exponential(key, (len(weights),)))
    return jnp.column_stack([weights, jax.vmap(log_gamma)(weights), log_lambda])
