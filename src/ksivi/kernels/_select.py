"""Exact order statistics by counting, without a sort."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from .._core.sharding import platform

Keys = Int[Array, "..."]
Count = Callable[[Int[Array, " t"]], Int[Array, " t"]]

_DIGITS_UP_TO = 2**18
"""Up to this many keys, a GPU searches by digits: more thresholds, but a fixed number of passes."""


def sortable(values: Float[Array, "..."]) -> Keys:
    """Integers in the same order as the given non-negative floats: their bits."""
    return lax.bitcast_convert_type(values, integer_like(values.dtype))


def integer_like(dtype: jnp.dtype) -> jnp.dtype:
    return jnp.dtype(f"int{8 * dtype.itemsize}")


def count_below(keys: Int[Array, "n m"], thresholds: Int[Array, " t"]) -> Int[Array, " t"]:
    """The number of keys below each threshold."""
    below = keys[None] < thresholds[:, None, None]
    by_column = jnp.sum(below, axis=1, dtype=jnp.uint32)
    if platform() == "cpu":  # keeps XLA from fusing the two sums: the first one is then vectorised
        by_column = lax.optimization_barrier(by_column)
    return jnp.sum(by_column, axis=1, dtype=jnp.uint32)


def rank_threshold(
    count_below: Count, lowest: Scalar, highest: Scalar, rank: int, size: int
) -> Scalar:
    """An integer such that the smallest key not below it has the given rank, counted from 0.

    **Arguments:**

    - `count_below`: the number of keys below each threshold, as unsigned 32-bit integers.
    - `lowest`, `highest`: the smallest and the largest key.
    - `rank`, `size`: the rank to find, and the number of keys.
    """
    if platform() == "cpu" or size > _DIGITS_UP_TO:
        return by_interpolation(lambda at: count_below(at[None])[0], lowest, highest, rank, size)
    return _by_digits(count_below, lowest.dtype, rank, size)


class _Search(NamedTuple):
    """A bracket low ≤ answer < high.

    `below` and `above` are the distances of its counts from the rank; `low_moved` is 1 if low moved
    last.
    """

    low: Scalar
    high: Scalar
    below: Scalar
    above: Scalar
    low_moved: Scalar
    passes: Scalar


def by_interpolation(
    count_below: Callable[[Scalar], Scalar], lowest: Scalar, highest: Scalar, rank: int, size: int
) -> Scalar:
    """The root of count(c) − rank by false position (the Illinois rule).

    Every fourth pass halves the bracket. Smoothly spread keys take about nine passes, while a
    search bit by bit takes 31. No keys take more than 4 · 31.
    """
    integer, real = lowest.dtype, jnp.dtype(f"float{8 * lowest.dtype.itemsize}")
    number = functools.partial(jnp.asarray, dtype=real)  # GPU kernels do not promote dtypes

    def unsettled(s: _Search) -> Array:
        return (s.below > 0) & (s.high - s.low > 1)

    def narrow(s: _Search) -> _Search:
        share = jnp.where(s.passes % 4 == 3, number(0.5), s.below / (s.below + s.above))
        step = (share * (s.high - s.low).astype(real)).astype(integer)
        at = jnp.minimum(jnp.maximum(s.low + step, s.low + 1), s.high - 1)
        count = count_below(at)
        low = count <= rank
        # An end that stays twice counts half, or the other end would approach the root slowly.
        halve = jnp.where(low == (s.low_moved == 1), number(0.5), number(1))
        below = jnp.where(low, (rank - count).astype(real), s.below * halve)
        above = jnp.where(low, s.above * halve, (count - rank).astype(real))
        low_moved = low.astype(jnp.int32)
        return _Search(
            jnp.where(low, at, s.low),
            jnp.where(low, s.high, at),
            below,
            above,
            low_moved,
            s.passes + 1,
        )

    none = jnp.zeros((), jnp.int32)
    start = _Search(lowest, highest + 1, number(rank), number(size - rank), none, none)
    return lax.while_loop(unsettled, narrow, start).low


def _by_digits(count_below: Count, dtype: jnp.dtype, rank: int, size: int) -> Scalar:
    """The largest integer with at most `rank` keys below it, w bits per pass from the top.

    A pass of w bits compares every key with 2^w − 1 thresholds. w is chosen so that a pass has at
    most a few million comparisons, which a GPU does in the time of a launch.
    """
    bits = 8 * dtype.itemsize - 1
    passes = -(-bits // min(7, max(3, int(math.log2(2**21 / size)))))
    key, low = jnp.zeros((), dtype), bits
    for i in range(passes):
        width = bits // passes + (i < bits % passes)
        low -= width
        offsets = jnp.arange(1, 2**width, dtype=dtype) << low
        key = key + (jnp.sum(count_below(key + offsets) <= rank, dtype=dtype) << low)
    return key
