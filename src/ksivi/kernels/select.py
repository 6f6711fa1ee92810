"""Exact order statistics by counting, without a sort."""

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


def order_statistic(exceeds: Callable[[Scalar, Offsets], Bool[Array, " t"]], dtype: jnp.dtype) -> Scalar:
    """The non-negative float at a given rank, found from counts alone.

    Builds the answer's bits from the top: the largest integer c such that no more than `rank` of the keys are
    below c is the key at that (0-based) rank. One pass settles `_digit_bits()` bits.

    **Arguments:**

    - `exceeds`: maps an origin and offsets to whether more than `rank` keys lie below origin + offset, for each offset.
    - `dtype`: float32 or float64.
    """
    integer, digit = _integer(dtype), _digit_bits()
    passes = -(-(8 * dtype.itemsize - 1) // digit)
    digits = jnp.arange(1, 2**digit, dtype=jnp.dtype(f"u{integer.name}"))

    def settle(i: Scalar, key: Scalar) -> Scalar:
        low = digit * (passes - 1 - i)
        # The top digit may reach into the sign bit, where no key is: such offsets stand above all keys.
        offsets = jnp.minimum(digits << low, jnp.iinfo(integer).max).astype(integer)
        return key + (jnp.sum(~exceeds(key, offsets), dtype=integer) << low)

    # Few passes are written out, for the compiler to fuse; many are a loop, for it to be quick.
    key = lax.fori_loop(0, passes, settle, jnp.zeros((), integer), unroll=passes <= 8)
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


def _digit_bits() -> int:
    """One bit a pass is the fewest operations (CPU); more are fewer kernel launches (accelerators)."""
    return 1 if jax.default_backend() == "cpu" else 8
