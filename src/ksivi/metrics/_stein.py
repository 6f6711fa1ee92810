"""Kernel Stein discrepancy and maximum mean discrepancy, in memory linear in the samples."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._core.checks import as_samples, attributing_errors_to
from .._core.compile import jit
from ..kernels import IMQ, AbstractKernel, Gaussian, Median, as_kernel, pair_mean, stein_mean

_FOR_BANDWIDTH = 1_000
"""Samples for the median bandwidth.

It is only a scale, and its cost grows with the number of pairs.
"""


def ksd(
    x: Float[Array, "n d"],
    score: Callable[[Float[Array, " d"]], Float[Array, " d"]],
    *,
    kernel: AbstractKernel | None = None,
) -> float:
    r"""KSD²(q‖p) from samples of q and the score of p, as a U-statistic.

    For q = p it is near 0, and may be negative.

        1/(n(n−1)) Σ_{i≠j} uₚ(xᵢ, xⱼ),   uₚ(x, y) = ⟨s(x), s(y)⟩ k + ⟨s(x), ∇_y k⟩ + ⟨s(y), ∇_x k⟩ +
        tr ∇_x ∇_y k

    **Arguments:**

    - `x`: samples of q.
    - `score`: the function ∇ log p of one point, such as `target.score`.
    - `kernel`: a twice differentiable kernel. Default: IMQ with the median bandwidth of the first
        1,000 samples.

    ```python
    ksivi.metrics.ksd(fit.posterior.sample(jax.random.key(0), 1_000), target.score)
    ```
    """
    x = as_samples(x, "x")
    if len(x) < 2:
        raise ValueError(f"x must hold at least 2 samples, got {len(x)}")
    kernel = as_kernel(kernel, IMQ())
    with attributing_errors_to("score"):
        shape = getattr(jax.eval_shape(_as_function(score), x[0]), "shape", None)
    if shape != x[0].shape:
        raise ValueError(f"score must return shape {x[0].shape}, like a point, got {shape}")
    return float(_ksd2(x, score, kernel.resolve(x[:_FOR_BANDWIDTH], x[:_FOR_BANDWIDTH], 1)))


def mmd(
    x: Float[Array, "n d"], y: Float[Array, "m d"], *, kernel: AbstractKernel | None = None
) -> float:
    r"""The maximum mean discrepancy ‖μ_x − μ_y‖ between two samples.

        MMD² = mean k(xᵢ, xⱼ) + mean k(yᵢ, yⱼ) − 2 mean k(xᵢ, yⱼ)   (all pairs)

    **Arguments:**

    - `x`, `y`: two samples.
    - `kernel`: default Gaussian, exp(−r²/h). h is the median squared distance between the first
        1,000 points of both samples together.

    ```python
    x, y = jax.random.normal(jax.random.key(0), (2, 500, 2))
    ksivi.metrics.mmd(x, y)
    ```
    """
    x = as_samples(x, "x")
    y = as_samples(y, "y", x.shape[1])
    x, y = (sample.astype(jnp.promote_types(x.dtype, y.dtype)) for sample in (x, y))
    pooled = jnp.concatenate([x[:_FOR_BANDWIDTH], y[:_FOR_BANDWIDTH]])
    # The median rule divides by log(n + 1); here h is the median itself.
    kernel = as_kernel(kernel, Gaussian(Median(scale=math.log(len(pooled) + 1))))
    kernel = kernel.resolve(pooled, pooled, 1)
    within_x, within_y, between = (
        float(_mean_kernel(kernel, *pair)) for pair in ((x, x), (y, y), (x, y))
    )
    return math.sqrt(max(within_x + within_y - 2 * between, 0.0))


def _as_function(score: Callable) -> Callable:
    if not callable(score):
        raise ValueError(
            f"score must be a function, such as target.score, got {type(score).__name__}"
        )
    return score


@jit
def _ksd2(x: Float[Array, "n d"], score: Callable, kernel: AbstractKernel) -> Array:
    return stein_mean(kernel, x, lax.map(score, x, batch_size=1_000))


@jit
def _mean_kernel(kernel: AbstractKernel, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Array:
    return pair_mean(
        kernel.gram, x, jnp.ones((len(x), 1), x.dtype), y, jnp.ones((len(y), 1), y.dtype)
    )
