"""The quantities that a bandwidth divides, for all pairs of two samples, in O(n m) memory."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Points = Float[Array, "n d"]
Pairs = Float[Array, "n m"]


def squared_euclidean(x: Points, y: Float[Array, "m d"]) -> Pairs:
    """‖xᵢ − yⱼ‖² = ‖xᵢ‖² + ‖yⱼ‖² − 2⟨xᵢ, yⱼ⟩, on centred points to keep precision."""
    centre = lax.stop_gradient(jnp.mean(y, axis=0, keepdims=True))
    x, y = x - centre, y - centre
    products = jnp.matmul(x, y.T, precision=lax.Precision.HIGHEST)
    squares = jnp.sum(x * x, axis=1)[:, None] + jnp.sum(y * y, axis=1)[None, :]
    return jnp.maximum(squares - 2 * products, 0)


def euclidean(x: Points, y: Float[Array, "m d"]) -> Pairs:
    """‖xᵢ − yⱼ‖, with zero gradient where the points coincide."""
    return root(squared_euclidean(x, y))


def root(squares: Pairs) -> Pairs:
    """The square root, with zero gradient at 0."""
    apart = squares > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1)), 0)


def manhattan(x: Points, y: Float[Array, "m d"]) -> Pairs:
    """‖xᵢ − yⱼ‖₁, which is not a matrix product."""
    return _by_coordinate(jnp.abs, x, y)


def squared_differences(x: Points, y: Float[Array, "m d"]) -> Pairs:
    """‖xᵢ − yⱼ‖² from the differences.

    It is accurate for close pairs far from the origin, where `squared_euclidean` is not.
    """
    return _by_coordinate(jnp.square, x, y)


def _by_coordinate(function: Callable[[Pairs], Pairs], x: Points, y: Float[Array, "m d"]) -> Pairs:
    """The sum of function(xᵢ − yⱼ) over coordinates, one by one: n × m × d is never stored."""

    @jax.checkpoint
    def add(total: Pairs, columns: tuple[Array, Array]) -> tuple[Pairs, None]:
        a, b = columns
        return total + function(a[:, None] - b[None, :]), None

    zero = jnp.zeros((len(x), len(y)), x.dtype)
    return lax.scan(add, zero, (x.T, y.T), unroll=min(4, x.shape[1]))[0]


def riesz_overlap(x: Points, y: Float[Array, "m d"]) -> Pairs:
    """‖xᵢ‖₁ + ‖yⱼ‖₁ − ‖xᵢ − yⱼ‖₁. It depends on the origin, so the points are not centred."""
    norms = jnp.sum(jnp.abs(x), axis=1)[:, None] + jnp.sum(jnp.abs(y), axis=1)[None, :]
    return jnp.maximum(norms - manhattan(x, y), 0)
