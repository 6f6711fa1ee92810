"""The pairwise engine: sums over all pairs of two samples, in tiles of bounded memory."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from .._sharding import whole

TILE = 2**22
"""Pairs that are held at once."""

Carry = TypeVar("Carry")
Pairwise = Callable[[Float[Array, "n d"], Float[Array, "m d"]], Float[Array, "n m"]]


def fold_rows(step: Callable[[Carry, PyTree], Carry], carry: Carry, rows: PyTree, num_columns: int) -> Carry:
    """Folds `step(carry, block of rows)` over blocks of at most `TILE` pairs.

    A block's pairs are recomputed, not stored, when the fold is differentiated. What fits in one tile is one call.
    """
    num_rows, block, in_blocks = _blocks(rows, num_columns)
    if in_blocks == block:
        carry = step(carry, jax.tree.map(lambda a: a[:block], rows))
    else:
        # Every block takes rows from everywhere, so that devices which each hold some rows all have work in each.
        blocks = jax.tree.map(lambda a: a[:in_blocks].reshape(block, -1, *a.shape[1:]).swapaxes(0, 1), rows)
        carry = lax.scan(lambda c, r: (jax.checkpoint(step)(c, r), None), carry, blocks)[0]
    if in_blocks < num_rows:
        carry = jax.checkpoint(step)(carry, jax.tree.map(lambda a: a[in_blocks:], rows))
    return carry


def map_rows(function: Callable[[PyTree], Array], rows: PyTree, num_columns: int) -> Array:
    """Applies `function`, which takes a block of rows to as many rows, over blocks of at most `TILE` pairs."""
    num_rows, block, in_blocks = _blocks(rows, num_columns)
    blocks = jax.tree.map(lambda a: a[:in_blocks].reshape(-1, block, *a.shape[1:]), rows)
    done = lax.map(function, blocks)
    done = done.reshape(in_blocks, *done.shape[2:])
    if in_blocks == num_rows:
        return done
    return jnp.concatenate([done, function(jax.tree.map(lambda a: a[in_blocks:], rows))])


def _blocks(rows: PyTree, num_columns: int) -> tuple[int, int, int]:
    """The number of rows, rows in a block, and rows in whole blocks."""
    num_rows = len(jax.tree.leaves(rows)[0])
    block = min(num_rows, max(1, TILE // num_columns))
    return num_rows, block, num_rows - num_rows % block


def num_pairs(n: int, m: int, group: int) -> int:
    """Pairs that count: all n m between two samples, n (n − group) within one."""
    if group and (n != m or n % group):
        raise ValueError(f"group must divide one sample paired with itself, got group {group} for {n} and {m} points")
    return n * (m - group)


def counted(rows: Int[Array, " r"], m: int, group: int) -> Bool[Array, "r m"] | None:
    """Which pairs count: rows in the same consecutive group of `group` do not; None when all do."""
    if group == 0:
        return None
    return (rows // group)[:, None] != (jnp.arange(m) // group)[None, :]


def pair_mean(
    gram: Pairwise,
    x: Float[Array, "n d"],
    f: Float[Array, "n e"],
    y: Float[Array, "m d"],
    g: Float[Array, "m e"],
    group: int = 0,
) -> Scalar:
    """Mean of k(xᵢ, yⱼ) ⟨fᵢ, gⱼ⟩ over the pairs that count."""
    m, y, g = len(y), whole(y), whole(g)

    def step(total: Scalar, block: tuple[Array, Array, Array]) -> Scalar:
        index, xs, fs = block
        weights = gram(xs, y)
        where = counted(index, m, group)
        weights = weights if where is None else jnp.where(where, weights, 0)
        products = jnp.matmul(fs, g.T, precision=lax.Precision.HIGHEST)
        return total + jnp.sum(weights * products)

    rows = (jnp.arange(len(x)), x, f)
    return fold_rows(step, jnp.zeros((), x.dtype), rows, m) / float(num_pairs(len(x), m, group))
