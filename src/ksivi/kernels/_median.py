"""The median over all pairs of two samples: exact, in tiles, with the gradient of the one pair that has it."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from .._core.compile import jit
from .._core.numerics import has_ampere
from .._core.sharding import platform, whole
from ._pairwise import Pairwise, counted, fold_rows, num_pairs
from ._select import Keys, count_below, integer_like, rank_threshold, sortable

_STORED = 2**25
"""Pairs whose spreads are kept from pass to pass. Those of more are computed anew in each."""
_IN_ONE_BLOCK = 2**15
"""Pairs that the registers of one block of a GPU's threads can hold."""

Carry = TypeVar("Carry")


def lower_median(spread: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int = 0) -> Scalar:
    """The lower median, sorted[(M − 1)//2], of the spread over the M pairs that count; its gradient is that entry's."""
    found = _median(spread, lax.stop_gradient(x), whole(lax.stop_gradient(y)), group)
    # Only the one pair is differentiated: a gradient through all of them is as many matrix products as the loss.
    entry = spread(_row(x, found.row), _row(y, found.column))[0, 0]
    return lax.bitcast_convert_type(found.key, x.dtype) + (entry - lax.stop_gradient(entry))


def _row(points: Float[Array, "n d"], i: Int[Array, ""]) -> Float[Array, "1 d"]:
    """Row i by selection, so that its gradient is one with the sums around it, and rows may lie on many devices."""
    return jnp.sum(jnp.where((jnp.arange(len(points)) == i)[:, None], points, 0), axis=0, keepdims=True)


class _Entry(NamedTuple):
    """A key, and where it is."""

    key: Scalar
    row: Int[Array, ""]
    column: Int[Array, ""]


@jit
def _median(spread: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int) -> _Entry:
    """The median by some passes over all pairs: bounds, counts below thresholds, and where it is."""
    m, size = len(y), num_pairs(len(x), len(y), group)
    if size > 2**32:
        raise ValueError(f"the median of {size:,} pairs is out of range: at most 2**32 pairs")
    largest = jnp.asarray(jnp.iinfo(integer_like(x.dtype)).max, integer_like(x.dtype))
    if len(x) * m <= _IN_ONE_BLOCK and platform() in ("gpu", "cuda") and has_ampere():
        from . import _one_block as one_block

        return _by_one_block(one_block.select, spread, x, y, group)

    is_stored = len(x) * m <= _STORED
    rows = (jnp.arange(len(x)), sortable(spread(x, y)) if is_stored else x)

    def fold(step: Callable[[Carry, Keys, Int[Array, " r"]], Carry], start: Carry) -> Carry:
        """Over keys and row numbers; the keys of pairs that do not count are the largest there are."""

        def on_block(carry: Carry, block: tuple[Array, Array]) -> Carry:
            keys = block[1] if is_stored else sortable(spread(block[1], y))
            where = counted(block[0], m, group)
            return step(carry, keys if where is None else jnp.where(where, keys, largest), block[0])

        return fold_rows(on_block, start, rows, m)

    def count(thresholds: Int[Array, " t"]) -> Int[Array, " t"]:
        zeros = jnp.zeros(thresholds.shape, jnp.uint32)
        return fold(lambda total, keys, _: total + count_below(keys, thresholds), zeros)

    lowest, highest = fold(lambda ends, keys, _: _widened(ends, keys, largest), (largest, -jnp.ones_like(largest)))
    threshold = rank_threshold(count, lowest, highest, (size - 1) // 2, size)
    nowhere = jnp.zeros((), int)
    not_below = lambda keys: jnp.where(keys < threshold, largest, keys)  # noqa: E731
    return fold(lambda best, keys, rows: _smaller(best, not_below(keys), rows), _Entry(largest, nowhere, nowhere))


def _by_one_block(
    select: Callable, spread: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int
) -> _Entry:
    """The median of few pairs on a GPU, in one launch."""
    m, size = len(y), num_pairs(len(x), len(y), group)
    keys, where = sortable(spread(x, y)), counted(jnp.arange(len(x)), m, group)
    keys = keys if where is None else jnp.where(where, keys, jnp.iinfo(keys.dtype).max)
    key, place = select(keys, (size - 1) // 2, size)
    return _Entry(key, place // m, place % m)


def _widened(ends: tuple[Scalar, Scalar], keys: Keys, largest: Scalar) -> tuple[Scalar, Scalar]:
    """The smallest and the largest key so far, those that do not count apart."""
    highest = jnp.max(jnp.where(keys == largest, -1, keys))
    return jnp.minimum(ends[0], jnp.min(keys)), jnp.maximum(ends[1], highest)


def _smaller(best: _Entry, keys: Int[Array, "r m"], rows: Int[Array, " r"]) -> _Entry:
    """The smallest key so far."""
    row = jnp.argmin(jnp.min(keys, axis=1))
    column = jnp.argmin(keys[row])
    found = _Entry(keys[row, column], rows[row], column.astype(rows.dtype))
    return jax.tree.map(lambda new, old: jnp.where(found.key < best.key, new, old), found, best)
