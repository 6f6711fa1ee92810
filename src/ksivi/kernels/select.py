"""Exact order statistics by counting, without a sort."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Scalar

Keys = Int[Array, "..."]
Offsets = Int[Array, " t"]


def sortable(values: Float[Array, "..."]) -> Keys:
    """Integers in the same order as the given non-negative floats: their own bits."""
    return lax.bitcast_convert_type(values, _integer(values.dtype))


def order_statistic(exceeds: Callable[[Scalar, Offsets], Bool[Array, " t"]], dtype: jnp.dtype, size: int) -> Scalar:
    """The non-negative float at a given rank, found from counts alone.

    Builds the answer's bits from the top: the largest integer c such that no more than `rank` of the keys are
    below c is the key at that (0-based) rank. One pass settles one digit.

    **Arguments:**

    - `exceeds`: maps an origin and offsets to whether more than `rank` keys lie below origin + offset, for each offset.
    - `dtype`: float32 or float64.
    - `size`: how many keys there are, which decides how many passes are best.
    """
    integer = _integer(dtype)
    widths = _digit_widths(8 * dtype.itemsize - 1, size)

    def settle(key: Scalar, low: int | Scalar, width: int) -> Scalar:
        offsets = jnp.arange(1, 2**width, dtype=integer) << low
        return key + (jnp.sum(~exceeds(key, offsets), dtype=integer) << low)

    key, low = jnp.zeros((), integer), sum(widths)
    if max(widths) == 1:
        key = lax.fori_loop(0, low, lambda i, key: settle(key, (low - 1 - i).astype(integer), 1), key)
    else:  # few passes are written out, for the compiler to fuse
        for width in widths:
            low -= width
            key = settle(key, low, width)
    return lax.bitcast_convert_type(key, dtype)


def count_below(keys: Keys, origin: Scalar, offsets: Offsets, counted: Bool[Array, "..."] | None) -> Int[Array, " t"]:
    """How many of the counted keys lie below origin + offset, for each offset; at most 2**24 keys."""
    below = (keys - origin).reshape(1, -1) < offsets[:, None]
    if counted is not None:
        below = below & counted.reshape(1, -1)
    # Sums of 0 and 1 in float32 are exact up to 2**24 and twice as fast as integer ones on a CPU.
    return jnp.sum(below.astype(jnp.float32), axis=1).astype(jnp.int32)


def _integer(dtype: jnp.dtype) -> jnp.dtype:
    return jnp.dtype(f"int{8 * dtype.itemsize}")


def _digit_widths(bits: int, size: int) -> list[int]:
    """Bits settled by each pass: single ones are the fewest operations (CPU), several the fewest kernels (GPU).

    w bits take 2^w − 1 comparisons with every key: beyond a few million in all, a GPU has more to do than to launch.
    """
    widest = 1 if jax.default_backend() == "cpu" else min(7, max(3, int(math.log2(2**21 / size))))
    passes = -(-bits // widest)
    return [bits // passes + (i < bits % passes) for i in range(passes)]
