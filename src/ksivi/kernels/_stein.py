"""The Stein kernel of a smooth radial kernel, computed with matrix products."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Scalar

from .._core.sharding import replicate
from ._distances import squared_euclidean
from ._kernel import AbstractKernel
from ._pairwise import counted, map_rows, num_pairs, sum_rows


def stein_gram(
    kernel: AbstractKernel,
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
    y: Float[Array, "m d"],
    t: Float[Array, "m d"],
) -> Float[Array, "n m"]:
    r"""uₚ(x, y) = ⟨s, t⟩ k + ⟨s, ∇_y k⟩ + ⟨t, ∇_x k⟩ + tr ∇_x ∇_y k for every pair.

    For k = φ(r²): ∇_x k = 2 φ′ (x − y) = −∇_y k and tr ∇_x ∇_y k = −2 d φ′ − 4 r² φ″.

    **Arguments:**

    - `kernel`: a twice differentiable kernel with fixed bandwidths.
    - `x`, `y`: points.
    - `s`, `t`: the target's scores at x and y.
    """
    r2 = squared_euclidean(x, y)
    k, slope, curvature = kernel.radial(r2)
    centre = jnp.mean(y, axis=0, keepdims=True)
    x, y = x - centre, y - centre
    along_s = jnp.sum(s * x, axis=1)[:, None] - _products(s, y)
    along_t = _products(x, t) - jnp.sum(t * y, axis=1)[None, :]
    trace = -2 * x.shape[1] * slope - 4 * r2 * curvature
    return _products(s, t) * k + 2 * slope * (along_t - along_s) + trace


def _products(a: Float[Array, "n d"], b: Float[Array, "m d"]) -> Float[Array, "n m"]:
    return jnp.matmul(a, b.T, precision=lax.Precision.HIGHEST)


def stein_mean(
    kernel: AbstractKernel, x: Float[Array, "n d"], s: Float[Array, "n d"], group: int = 1
) -> Scalar:
    """KSD², the mean of the Stein kernel over the pairs of one sample.

    It is unbiased for group = 1 and a fixed bandwidth.
    """
    n = len(x)

    def part(
        shared: tuple[AbstractKernel, Array, Array], block: tuple[Array, Array, Array]
    ) -> Scalar:
        (kernel, y, t), (index, xs, ss) = shared, block
        values = stein_gram(kernel, xs, ss, y, t)
        where = counted(index, n, group)
        return jnp.sum(values if where is None else jnp.where(where, values, 0))

    total = sum_rows(part, (kernel, replicate(x), replicate(s)), (jnp.arange(n), x, s), n)
    return total / float(num_pairs(n, n, group))


def stein_direction(
    kernel: AbstractKernel,
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
    at: Float[Array, "m d"] | None = None,
) -> Float[Array, "m d"]:
    r"""φ(y) = 1/n Σⱼ [k(xⱼ, y) s(xⱼ) + ∇_{xⱼ} k(xⱼ, y)], the update direction of SVGD.

    It is the direction of steepest descent of KL in the kernel's space. For k = φ(r²) the sums are
    matrix products, since ∇_{xⱼ} k = 2 φ′ (xⱼ − y).

    **Arguments:**

    - `kernel`: a differentiable kernel with fixed bandwidths.
    - `x`, `s`: points and the target's scores there.
    - `at`: the points y. Default: x.
    """
    at, x, s = (x if at is None else at), replicate(x), replicate(s)
    n, centre = len(x), jnp.mean(x, axis=0, keepdims=True)
    centred = x - centre

    def rows(block: tuple[Array, Array]) -> Float[Array, "r d"]:
        points, offsets = block
        k, slope, _ = kernel.radial(squared_euclidean(points, x))
        pull = _products(k, s.T)
        push = 2 * (_products(slope, centred.T) - jnp.sum(slope, axis=1, keepdims=True) * offsets)
        return (pull + push) / n

    return map_rows(rows, (at, at - centre), n)
