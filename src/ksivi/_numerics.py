"""Numbers that are easy to get wrong: the precision of matrix products, and importance weights."""

import contextlib
import math
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float

Vector = TypeVar("Vector", Float[np.ndarray, " n"], Float[Array, " n"])


def full_precision() -> contextlib.AbstractContextManager:
    """Traces matrix products in full precision unless the user has set `jax_default_matmul_precision`.

    Accelerators multiply float32 matrices in TF32 by default, which is a relative error of 1e-3 in a score.
    """
    chosen = jax.config.values["jax_default_matmul_precision"]
    return contextlib.nullcontext() if chosen is not None else jax.default_matmul_precision("highest")


def log_mean_exp(a: Float[Array, "n m"]) -> Float[Array, " n"]:
    """log 1/m Σ exp, along rows."""
    return jax.nn.logsumexp(a, axis=1) - math.log(a.shape[1])


def truncated_weights(log_weights: Vector) -> Vector:
    """Weights that sum to 1, cut at √n times their mean, so that none carries all; weights that are NaN count as 0.

    NumPy in, NumPy out; JAX in, JAX out. Reference: Ionides, Truncated importance sampling, 2008.
    """
    xp = log_weights.__array_namespace__()
    finite = finite_or_nothing(log_weights)
    weights = xp.exp(finite - finite.max())
    weights = xp.minimum(weights, weights.mean() * len(weights) ** 0.5)
    return weights / weights.sum()


def finite_or_nothing(log_weights: Vector) -> Vector:
    """Log weights, those that are not finite as −∞."""
    xp = log_weights.__array_namespace__()
    return xp.where(xp.isfinite(log_weights), log_weights, -xp.inf)
