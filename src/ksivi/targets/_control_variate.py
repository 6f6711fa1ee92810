"""The control variate of minibatches: the log likelihood and its score, of all rows, at a point near the mode."""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._core.compile import jit
from .._core.numerics import full_precision
from ._density import Anchor, DataDensity, Point
from ._rows import Rows

_READ_BYTES = 2**24
"""Of rows that are read at once: for sums over all of them a few blocks at a time, and for a Hessian."""


def anchored(density: DataDensity, point: Point, num_newton: int) -> DataDensity:
    """The density with its control variate at the point, or at where some steps of Newton lead from there."""
    for _ in range(num_newton):
        score = _over_all_rows(density, point)[1] + np.asarray(jax.grad(density.log_prior)(point), float)
        step = np.linalg.solve(np.asarray(_hessian(_with_many_rows(density), point), float), score)
        point = jnp.asarray(np.asarray(point, float) - step, point.dtype)
    value, score = _over_all_rows(density, point)
    anchor = Anchor(point, jnp.asarray(value, point.dtype), jnp.asarray(score, point.dtype))
    return dataclasses.replace(density, anchor=anchor)


def _over_all_rows(density: DataDensity, point: Point) -> tuple[float, Float[np.ndarray, " d"]]:
    """The log likelihood and its score, of all rows, summed in double precision over blocks."""
    value, score = 0.0, np.zeros(len(point))
    for block in _blocks(density):
        one, slope = _of_block(density.log_likelihood, point, block)
        value, score = value + float(one), score + np.asarray(slope, float)
    return value, score


def _blocks(density: DataDensity) -> Iterator[PyTree]:
    if density.feed is None:
        yield density.data
        return
    source = density.feed.source
    count = max(1, _num_readable(source) // source.block_size)
    for first in range(0, source.num_blocks, count):
        blocks = [source.block(i) for i in range(first, min(first + count, source.num_blocks))]
        yield jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *blocks)


def _with_many_rows(density: DataDensity) -> DataDensity:
    """With more rows at hand than a minibatch, at random, for a Hessian that deserves the name."""
    if density.feed is None:
        return density
    source = density.feed.source
    rows = source.take(0, 0, min(source.num_rows, _num_readable(source)))
    return dataclasses.replace(density, data=jax.tree.map(jnp.asarray, rows))


def _num_readable(source: Rows) -> int:
    """Rows that are read at once."""
    block = jax.tree.leaves(source.block(0))
    return max(1, _READ_BYTES * len(block[0]) // sum(leaf.nbytes for leaf in block))


@jit
def _of_block(log_likelihood, point: Point, block: PyTree) -> tuple[Array, Point]:
    with full_precision():
        return jax.value_and_grad(log_likelihood)(point, block)


@jit
def _hessian(density: DataDensity, point: Point) -> Float[Array, "d d"]:
    """Of the log density, from the rows at hand, a column at a time, since all at once hold dim times the rows."""
    score = dataclasses.replace(density, anchor=None, rows=None).score
    with full_precision():
        return lax.map(lambda e: jax.jvp(score, (point,), (e,))[1], jnp.eye(len(point), dtype=point.dtype))
