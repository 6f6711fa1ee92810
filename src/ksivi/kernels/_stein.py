"""The Stein kernel of a smooth radial kernel, computed with matrix products."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Scalar

from .._core.sharding import replicate
from ._distances import squared_euclidean
from ._kernel import AbstractKernel
from ._pairwise import counted, map_rows, num_pairs, sum_rows


class SteinOperator(NamedTuple):
    """s + u ∇, at each of n points x. u = None stands for 1."""

    x: Float[Array, "n d"]
    s: Float[Array, "n d"]
    u: Float[Array, " n"] | None = None


def squared_length(kernel: AbstractKernel) -> Scalar:
    r"""ℓ² = −φ(0) / (2 φ′(0)) of a kernel φ(r²) with fixed bandwidths.

    Near 0 the kernel is φ(0) (1 − r²/(2ℓ²) + …). ℓ² = h/2 for the Gaussian kernel, h for IMQ.
    """
    k, slope, _ = kernel.radial(jnp.zeros((1, 1)))
    return (-k / (2 * slope))[0, 0]


def stein_gram(
    kernel: AbstractKernel,
    x: Float[Array, "n d"],
    s: Float[Array, "n d"],
    y: Float[Array, "m d"],
    t: Float[Array, "m d"],
    u: Float[Array, " n"] | None = None,
    v: Float[Array, " m"] | None = None,
) -> Float[Array, "n m"]:
    r"""⟨s + u ∇_x, t + v ∇_y⟩ k for every pair of x and y.

        ⟨s, t⟩ k + v ⟨s, ∇_y k⟩ + u ⟨t, ∇_x k⟩ + u v tr ∇_x ∇_y k

    It is the Stein kernel uₚ(x, y) for u = v = 1 and scores s, t. For k = φ(r²): ∇_x k =
    2 φ′ (x − y) = −∇_y k and tr ∇_x ∇_y k = −2 d φ′ − 4 r² φ″.

    **Arguments:**

    - `kernel`: a twice differentiable kernel with fixed bandwidths.
    - `x`, `y`: points.
    - `s`, `t`: the target's scores at x and y.
    - `u`, `v`: a number for each point. Default: 1.
    """
    r2 = squared_euclidean(x, y)
    k, slope, curvature = kernel.radial(r2)
    centre = lax.stop_gradient(jnp.mean(y, axis=0, keepdims=True))
    x, y = x - centre, y - centre
    along_s = jnp.sum(s * x, axis=1)[:, None] - _products(s, y)
    along_t = _products(x, t) - jnp.sum(t * y, axis=1)[None, :]
    trace = -2 * x.shape[1] * slope - 4 * r2 * curvature
    if v is not None:
        along_s, trace = along_s * v[None, :], trace * v[None, :]
    if u is not None:
        along_t, trace = along_t * u[:, None], trace * u[:, None]
    return _products(s, t) * k + 2 * slope * (along_t - along_s) + trace


def _products(a: Float[Array, "n d"], b: Float[Array, "m d"]) -> Float[Array, "n m"]:
    return jnp.matmul(a, b.T, precision=lax.Precision.HIGHEST)


def stein_mean(
    kernel: AbstractKernel, x: Float[Array, "n d"], s: Float[Array, "n d"], group: int = 1
) -> Scalar:
    """KSD², the mean of the Stein kernel over the pairs of one sample.

    It is unbiased for group = 1 and a fixed bandwidth.
    """
    return stein_pair_mean(kernel, SteinOperator(x, s), SteinOperator(x, s), group)


def stein_pair_mean(
    kernel: AbstractKernel, first: SteinOperator, second: SteinOperator, group: int = 0
) -> Scalar:
    """The mean of `stein_gram` over the pairs that count."""
    n, m = len(first.x), len(second.x)

    def part(
        shared: tuple[AbstractKernel, SteinOperator], block: tuple[Array, SteinOperator]
    ) -> Scalar:
        (kernel, (y, t, v)), (index, (x, s, u)) = shared, block
        values = stein_gram(kernel, x, s, y, t, u, v)
        where = counted(index, m, group)
        return jnp.sum(values if where is None else jnp.where(where, values, 0))

    shared = (kernel, jax.tree.map(replicate, second))
    return sum_rows(part, shared, (jnp.arange(n), first), m) / float(num_pairs(n, m, group))


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
