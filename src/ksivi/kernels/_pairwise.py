"""Sums over all pairs of two samples, in tiles of bounded memory."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from .._core.sharding import platform, replicate

TILE: int | None = None
"""The number of pairs in memory. None: as many as keep the device busy."""

Carry = TypeVar("Carry")
Pairwise = Callable[[Float[Array, "n d"], Float[Array, "m d"]], Float[Array, "n m"]]
Part = Callable[[PyTree, PyTree], Scalar]


def fold_rows(
    step: Callable[[Carry, PyTree], Carry], carry: Carry, rows: PyTree, num_columns: int
) -> Carry:
    """Folds `step(carry, block of rows)` over blocks of at most one tile of pairs.

    The gradient recomputes a block's pairs instead of storing them. If all pairs fit in one tile,
    `step` is called once.
    """
    blocks, rest = _blocks(rows, num_columns)
    if blocks is None:
        return step(carry, rest)
    carry = lax.scan(lambda c, r: (jax.checkpoint(step)(c, r), None), carry, blocks)[0]
    return carry if rest is None else jax.checkpoint(step)(carry, rest)


def sum_rows(part: Part, shared: PyTree, rows: PyTree, num_columns: int) -> Scalar:
    """Σ part(shared, block of rows) over blocks of at most one tile of pairs.

    Value and gradient take one pass over the pairs together. The parts are summed at the end, since
    a running sum loses the digits that differences of means need. Everything to differentiate must
    be in the arguments of `part`, not in its closure.
    """
    blocks, rest = _blocks(rows, num_columns)
    if blocks is None:
        return part(shared, rest)
    total = _sum_blocks((shared, blocks), part)
    return total if rest is None else total + eqx.filter_checkpoint(part)(shared, rest)


@eqx.filter_custom_vjp
def _sum_blocks(varying: tuple[PyTree, PyTree], part: Part) -> Scalar:
    shared, blocks = varying
    return jnp.sum(lax.map(lambda block: part(shared, block), blocks))


@_sum_blocks.def_fwd
def _sum_and_differentiate(
    perturbed: tuple[PyTree, PyTree], varying: tuple[PyTree, PyTree], part: Part
) -> tuple[Scalar, tuple[PyTree, PyTree]]:
    """The value, and the gradient as the residual: the backward pass only multiplies it."""
    shared, fixed = eqx.partition(varying[0], perturbed[0])

    def step(so_far: PyTree, block: PyTree) -> tuple[PyTree, tuple[Scalar, PyTree]]:
        moving, still = eqx.partition(block, perturbed[1])
        value = lambda s, m: part(eqx.combine(s, fixed), eqx.combine(m, still))  # noqa: E731
        value, (of_shared, of_rows) = jax.value_and_grad(value, argnums=(0, 1))(shared, moving)
        return jax.tree.map(jnp.add, so_far, of_shared), (value, of_rows)

    of_shared, (values, of_rows) = lax.scan(step, jax.tree.map(jnp.zeros_like, shared), varying[1])
    return jnp.sum(values), (of_shared, of_rows)


@_sum_blocks.def_bwd
def _scale_gradient(
    gradient: PyTree, by: Scalar, perturbed: PyTree, varying: PyTree, part: Part
) -> PyTree:
    return jax.tree.map(lambda g: by * g, gradient)


def map_rows(function: Callable[[PyTree], Array], rows: PyTree, num_columns: int) -> Array:
    """Applies `function` to blocks of at most one tile of pairs; it returns one row per row."""
    num_rows, block, in_blocks = _block_sizes(rows, num_columns)
    blocks = jax.tree.map(lambda a: a[:in_blocks].reshape(-1, block, *a.shape[1:]), rows)
    done = lax.map(function, blocks)
    done = done.reshape(in_blocks, *done.shape[2:])
    if in_blocks == num_rows:
        return done
    return jnp.concatenate([done, function(jax.tree.map(lambda a: a[in_blocks:], rows))])


def _blocks(rows: PyTree, num_columns: int) -> tuple[PyTree | None, PyTree | None]:
    """Rows in equal blocks, and the remaining rows. If all fit in one tile, there are no blocks."""
    num_rows, block, in_blocks = _block_sizes(rows, num_columns)
    if block == num_rows:
        return None, rows
    # Each block takes rows from everywhere, so that all devices of a mesh work on each block.
    blocks = jax.tree.map(
        lambda a: a[:in_blocks].reshape(block, -1, *a.shape[1:]).swapaxes(0, 1), rows
    )
    return blocks, jax.tree.map(lambda a: a[in_blocks:], rows) if in_blocks < num_rows else None


def _block_sizes(rows: PyTree, num_columns: int) -> tuple[int, int, int]:
    """The number of rows, of rows in a block, and of rows in whole blocks."""
    num_rows = len(jax.tree.leaves(rows)[0])
    block = min(num_rows, max(1, (TILE or _tile()) // num_columns))
    return num_rows, block, num_rows - num_rows % block


def _tile() -> int:
    """16 MiB in single precision on a CPU, for its caches; 256 MiB on a GPU, to keep it busy."""
    return 2**22 if platform() == "cpu" else 2**26


def num_pairs(n: int, m: int, group: int) -> int:
    """The number of pairs that count: n m between two samples, n (n − group) within one."""
    if group and (n != m or n % group):
        raise ValueError(
            "group must divide one sample paired with itself, got group "
            f"{group} for {n} and {m} points"
        )
    return n * (m - group)


def counted(rows: Int[Array, " r"], m: int, group: int) -> Bool[Array, "r m"] | None:
    """A mask of the pairs that count: not those in the same group of `group` rows. None for all."""
    if group == 0:
        return None
    return (rows // group)[:, None] != (jnp.arange(m) // group)[None, :]


def kernel_mean(
    gram: Pairwise, x: Float[Array, "n d"], y: Float[Array, "m d"], g: Float[Array, "m e"]
) -> Float[Array, "n e"]:
    """1/m Σⱼ k(xᵢ, yⱼ) gⱼ for every i."""
    y, g = replicate(y), replicate(g)

    def rows(xs: Float[Array, "r d"]) -> Float[Array, "r e"]:
        return jnp.matmul(gram(xs, y), g, precision=lax.Precision.HIGHEST) / len(y)

    return map_rows(rows, x, len(y))


def pair_mean(
    gram: Pairwise,
    x: Float[Array, "n d"],
    f: Float[Array, "n e"],
    y: Float[Array, "m d"],
    g: Float[Array, "m e"],
    group: int = 0,
) -> Scalar:
    """The mean of k(xᵢ, yⱼ) ⟨fᵢ, gⱼ⟩ over the pairs that count."""
    m = len(y)

    def part(shared: tuple[Pairwise, Array, Array], block: tuple[Array, Array, Array]) -> Scalar:
        (gram, y, g), (index, xs, fs) = shared, block
        weights = gram(xs, y)
        where = counted(index, m, group)
        weights = weights if where is None else jnp.where(where, weights, 0)
        return jnp.sum(weights * jnp.matmul(fs, g.T, precision=lax.Precision.HIGHEST))

    total = sum_rows(part, (gram, replicate(y), replicate(g)), (jnp.arange(len(x)), x, f), m)
    return total / float(num_pairs(len(x), m, group))
