"""The exact median over all pairs of two samples, in tiles, with the gradient of its pair."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from .._core.compile import jit
from .._core.numerics import has_ampere
from .._core.sharding import platform, replicate
from ._pairwise import Pairwise, counted, fold_rows, num_pairs
from ._select import Keys, count_below, integer_like, rank_threshold, sortable

_STORED = 2**25
"""Up to this many pairs, spreads are stored between passes. Otherwise each pass recomputes them."""
_IN_ONE_BLOCK = 2**15
"""The number of pairs that fit in the registers of one GPU thread block."""

Carry = TypeVar("Carry")


def lower_median(
    spread: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int = 0
) -> Scalar:
    """The lower median, sorted[(M − 1)//2], of the spread over the M pairs that count.

    Its gradient is the gradient of that entry.
    """
    found = _median(spread, lax.stop_gradient(x), replicate(lax.stop_gradient(y)), group)
    # Only one pair is differentiated: a gradient through all pairs would cost as much as the loss.
    entry = spread(_row(x, found.row), _row(y, found.column))[0, 0]
    return lax.bitcast_convert_type(found.key, x.dtype) + (entry - lax.stop_gradient(entry))


def _row(points: Float[Array, "n d"], i: Int[Array, ""]) -> Float[Array, "1 d"]:
    """Row i by masking: its gradient fuses with the sums around it, and rows may be sharded."""
    return jnp.sum(
        jnp.where((jnp.arange(len(points)) == i)[:, None], points, 0), axis=0, keepdims=True
    )


class _Entry(NamedTuple):
    """A key and its position."""

    key: Scalar
    row: Int[Array, ""]
    column: Int[Array, ""]


@jit
def _median(spread: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int) -> _Entry:
    """The median by passes over all pairs: bounds, counts below thresholds, and its position."""
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
        """Folds over keys and row indices. Pairs that do not count have the largest key."""

        def on_block(carry: Carry, block: tuple[Array, Array]) -> Carry:
            keys = block[1] if is_stored else sortable(spread(block[1], y))
            where = counted(block[0], m, group)
            return step(carry, keys if where is None else jnp.where(where, keys, largest), block[0])

        return fold_rows(on_block, start, rows, m)

    def count(thresholds: Int[Array, " t"]) -> Int[Array, " t"]:
        zeros = jnp.zeros(thresholds.shape, jnp.uint32)
        return fold(lambda total, keys, _: total + count_below(keys, thresholds), zeros)

    lowest, highest = fold(
        lambda ends, keys, _: _widened(ends, keys, largest), (largest, -jnp.ones_like(largest))
    )
    threshold = rank_threshold(count, lowest, highest, (size - 1) // 2, size)
    nowhere = jnp.zeros((), int)
    not_below = lambda keys: jnp.where(keys < threshold, largest, keys)  # noqa: E731
    return fold(
        lambda best, keys, rows: _smaller(best, not_below(keys), rows),
        _Entry(largest, nowhere, nowhere),
    )


def _by_one_block(
    select: Callable, spread: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], group: int
) -> _Entry:
    """The median of a few pairs on a GPU, in one kernel launch."""
    m, size = len(y), num_pairs(len(x), len(y), group)
    keys, where = sortable(spread(x, y)), counted(jnp.arange(len(x)), m, group)
    keys = keys if where is None else jnp.where(where, keys, jnp.iinfo(keys.dtype).max)
    key, place = select(keys, (size - 1) // 2, size)
    return _Entry(key, place // m, place % m)


def _widened(ends: tuple[Scalar, Scalar], keys: Keys, largest: Scalar) -> tuple[Scalar, Scalar]:
    """The smallest and the largest key so far, without the pairs that do not count."""
    highest = jnp.max(jnp.where(keys == largest, -1, keys))
    return jnp.minimum(ends[0], jnp.min(keys)), jnp.maximum(ends[1], highest)


def _smaller(best: _Entry, keys: Int[Array, "r m"], rows: Int[Array, " r"]) -> _Entry:
    """The smallest key so far."""
    row = jnp.argmin(jnp.min(keys, axis=1))
    column = jnp.argmin(keys[row])
    found = _Entry(keys[row, column], rows[row], column.astype(rows.dtype))
    return jax.tree.map(lambda new, old: jnp.where(found.key < best.key, new, old), found, best)
