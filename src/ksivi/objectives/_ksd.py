"""Estimates of KSD² from batches of samples, each by one way to write the score of q."""

from typing import Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree, Scalar

from .._core.numerics import full_precision
from ..kernels import (
    AbstractKernel,
    SteinOperator,
    as_smooth_kernel,
    pair_mean,
    squared_length,
    stein_pair_mean,
)
from ._tilt import Tilt

Estimator = Literal["vanilla", "u-statistic", "stein", "combined", "mixture"]
WITH_DERIVATIVES = ("stein", "combined")
"""Estimators that differentiate the kernel."""

Tree = TypeVar("Tree", bound=PyTree)


class Batches(NamedTuple):
    """r batches of n samples x, with the scores of p and of the sampler, tr D(z)⁻¹, and Var x.

    The scores of the sampler are those of q(x|z), or of the mixture over the z of a batch.
    """

    x: Float[Array, "r n d"]
    score: Float[Array, "r n d"]
    sampler_score: Float[Array, "r n d"]
    precision: Float[Array, "r n"]
    variances: Float[Array, " d"]


def require_derivatives(kernel: AbstractKernel, estimator: Estimator) -> None:
    """Raises `ValueError` if the estimator differentiates the kernel and the kernel is rough."""
    if estimator not in WITH_DERIVATIVES:
        return
    try:
        as_smooth_kernel(kernel, kernel)
    except ValueError as error:
        raise ValueError(
            f'kernel must be smooth for estimator="{estimator}", or the estimator "vanilla" or '
            f'"u-statistic": {error}'
        ) from error


def score_ksd2(
    kernel: AbstractKernel,
    batches: Batches,
    group: int,
    tilt: Tilt | None,
    inverse_covariance: bool,
) -> Scalar:
    """The mean of k(x, x′) ⟨f, f′⟩ with f = m(x) (s_p(x) − s(x)), s the sampler's score.

    m is the tilt, or the identity. Two batches are paired across, one batch with itself, without
    pairs that share z.
    """
    f = batches.score - batches.sampler_score
    if tilt is not None:
        f = tilt(batches.x, batches.score, f)
    x1, x2 = _first_and_last(batches.x)
    f1, f2 = _first_and_last(f)
    kernel = kernel.resolve(x1, x2, group)
    f2 = _solve_covariance(x1, f2) if inverse_covariance else f2
    return pair_mean(kernel.gram, x1, f1, x2, f2, group)


def stein_ksd2(kernel: AbstractKernel, batches: Batches, estimator: Estimator) -> Scalar:
    """The mean of ⟨s_p + ∇, s_p′ + ∇′⟩ k(x, x′), or of the combination, over two batches."""
    kernel = kernel.resolve(*_first_and_last(batches.x))
    both = SteinOperator(batches.x, batches.score)
    if estimator == "combined":
        w = _share(kernel, batches)
        score = batches.score - w[..., None] * batches.sampler_score
        both = SteinOperator(batches.x, score, 1 - w)
    return stein_pair_mean(kernel, *_first_and_last(both))


def _share(kernel: AbstractKernel, batches: Batches) -> Float[Array, "r n"]:
    r"""The share of the conditional score, w = (1/V + 1/ℓ²) / (1/σ² + 1/ℓ²), at most 1.

    1/σ² = tr D(z)⁻¹/d, and 1/V = 1/d Σᵢ 1/Var xᵢ. At q = p, E[s_p − s_{q(·|z)} | x] = 0: the
    conditional form has the variance 1/σ² − 1/V more than s_p itself, whose variance is about 1/V.
    The Stein form has that of s_p and of the derivative, 1/V + 1/ℓ², and the two are uncorrelated.
    So w is the weight inverse to these variances. It depends on the z alone, not on ξ; hence any w
    is unbiased, and it needs no gradient.
    """
    derivative = 1 / squared_length(kernel).astype(batches.precision.dtype)
    precision = batches.precision / batches.x.shape[-1]
    w = (jnp.mean(1 / batches.variances) + derivative) / (precision + derivative)
    return lax.stop_gradient(jnp.minimum(w, 1))


def _first_and_last(batches: Tree) -> tuple[Tree, Tree]:
    # The gradient of a split is one concatenation; that of two slices is a sum of padded copies.
    leaves, structure = jax.tree.flatten(batches)
    parts = [[part[0] for part in jnp.split(leaf, len(leaf))] for leaf in leaves]
    first, last = ([part[end] for part in parts] for end in (0, -1))
    return jax.tree.unflatten(structure, first), jax.tree.unflatten(structure, last)


def _solve_covariance(x: Float[Array, "n d"], f: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """C⁻¹ f for every row of f, where C = cov(x) + 1e-8 I has no gradient."""
    with full_precision():
        covariance = jnp.atleast_2d(jnp.cov(lax.stop_gradient(x), rowvar=False))
    covariance = covariance + 1e-8 * jnp.eye(x.shape[1], dtype=x.dtype)
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(covariance), f.T).T
