"""Densities of diagonal Gaussians, and the scores of their mixtures."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Scalar

from .._core.numerics import full_precision


def log_normal(xi: Float[Array, " d"], log_var: Float[Array, " d"]) -> Scalar:
    """log N(x; μ, σ²) at x = μ + σ ⊙ ξ."""
    return -0.5 * jnp.sum(xi**2 + log_var + jnp.log(2 * jnp.pi))


def log_normals(
    x: Float[Array, "n d"], mean: Float[Array, "m d"], log_var: Float[Array, "m d"]
) -> Float[Array, "n m"]:
    """log N(xᵢ; μⱼ, σⱼ²) for every pair, by matrix products: n × m × d is never stored.

    This is for training. Single precision loses digits if the means spread over thousands of σ; use
    `exact_log_normals` then.
    """
    # Centre the points, so that an offset does not lose digits when the square is expanded.
    centre = lax.stop_gradient(jnp.mean(mean, axis=0, keepdims=True))
    x, mean, precision = x - centre, mean - centre, jnp.exp(-log_var)
    with full_precision():
        squares = (x * x) @ precision.T - 2 * (x @ (precision * mean).T)
    squares = squares + jnp.sum(precision * mean**2, axis=1)[None, :]
    constants = jnp.sum(log_var + jnp.log(2 * jnp.pi), axis=1)
    return -0.5 * (jnp.maximum(squares, 0) + constants[None, :])


def mixture_scores(
    x: Float[Array, "n d"], mean: Float[Array, "m d"], log_var: Float[Array, "m d"]
) -> Float[Array, "n d"]:
    r"""∇ₓ log 1/m Σₖ N(x; μₖ, σₖ²) at every x, in single precision like `log_normals`.

    Σₖ wₖ(x) (μₖ − x)/σₖ²  with  wₖ(x) ∝ N(x; μₖ, σₖ²)
    """
    weights = jax.nn.softmax(log_normals(x, mean, log_var), axis=1)
    centre = lax.stop_gradient(jnp.mean(mean, axis=0, keepdims=True))
    precision = jnp.exp(-log_var)
    with full_precision():
        pull = weights @ (precision * (mean - centre))
        return pull - (weights @ precision) * (x - centre)


def exact_log_normals(
    x: Float[Array, "n d"], mean: Float[Array, "m d"], log_var: Float[Array, "m d"]
) -> Float[Array, "n m"]:
    """The same from the differences, coordinate by coordinate, for weights and densities."""

    def add(total: Array, columns: tuple[Array, Array, Array]) -> tuple[Array, None]:
        a, b, c = columns
        return total - 0.5 * (
            (a[:, None] - b[None, :]) ** 2 * jnp.exp(-c)[None, :] + c[None, :]
        ), None

    constant = jnp.full((len(x), len(mean)), -0.5 * x.shape[1] * jnp.log(2 * jnp.pi), x.dtype)
    return lax.scan(add, constant, (x.T, mean.T, log_var.T))[0]
