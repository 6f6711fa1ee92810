"""Densities with data: rows in memory, over several devices, or read from the host."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree, Scalar

from .._core.checks import as_count, count_rows
from .._core.compile import jit, one_shot
from .._core.numerics import full_precision
from .._core.sharding import axis_size, has_axis, own_rows, shard_rows
from ._density import AbstractDensity, BatchDensity, Point, RowIndices, uniform_rows
from ._explain import explain_rows
from ._frames import with_arrays
from ._rows import Rows

_READ_BYTES = 2**24
"""Bytes of host rows that are read together, for sums over all rows and for a Hessian."""


class ControlVariate(eqx.Module):
    r"""A point a near the mode, with ∑ᵢ ℓᵢ(a) and ∑ᵢ ∇ℓᵢ(a) over all rows."""

    point: Point
    value: Scalar
    score: Point


class Feed(eqx.Module):
    """The source of rows that stay on the host, and the current step in the rows last read."""

    cursor: Int[Array, ""]
    source: Rows = eqx.field(static=True)


class DataDensity(AbstractDensity):
    r"""log_prior(x) + N/|batch| · log_likelihood(x, batch), over all rows until `rows` are chosen.

    With a control variate at a, the log likelihood ℓ(x) is estimated from a minibatch by
    ℓ(a) + ∇ℓ(a)ᵀ(x − a) + N/|batch| ∑ᵢ [ℓᵢ(x) − ℓᵢ(a) − ∇ℓᵢ(a)ᵀ(x − a)]. The first two terms are
    sums over all rows.

    If rows stay on the host, `data` holds the minibatches of some steps, one after another.
    """

    log_prior: Callable[[Point], Scalar]
    log_likelihood: Callable[[Point, PyTree], Scalar]
    data: PyTree
    rows: RowIndices | None
    batch_size: int | None = eqx.field(static=True)
    control_variate: ControlVariate | None = None
    feed: Feed | None = None

    @property
    def given_as(self) -> str:
        return "log_prior(x) + log_likelihood(x, data)"

    def explain(self, x):
        prior, score = jax.value_and_grad(self.log_prior)(x)
        if bool(jnp.isfinite(prior)) and bool(jnp.isfinite(score).all()):
            found = explain_rows(self.log_likelihood, x, self._blocks(), self.num_rows)
        else:
            found = ""
        return found or (
            f"log_prior(x) is {prior} there; if it is finite elsewhere, give such a point as "
            "test_point=; if a parameter is positive or bounded, write both functions on an "
            "unconstrained scale, with the Jacobian"
        )

    def value(self, x):
        batch, size = self.data, len(jax.tree.leaves(self.data)[0])
        if self.rows is not None:
            batch, size = jax.tree.map(lambda column: column[self.rows], self.data), len(self.rows)
        if size == self.num_rows:
            return self.log_prior(x) + self.log_likelihood(x, batch)
        return self.log_prior(x) + self._estimate(x, batch, self.num_rows / size)

    def value_and_score(self, x):
        return jax.value_and_grad(self.value)(x)

    def score(self, x):
        return jax.grad(self.value)(x)

    def _estimate(self, x: Point, batch: PyTree, factor: float) -> Scalar:
        """The log likelihood of all rows, estimated from a minibatch."""
        here = self.log_likelihood(x, batch)
        if self.control_variate is None:
            return factor * here
        a, step = self.control_variate, x - self.control_variate.point
        there, slope = jax.value_and_grad(lambda p: self.log_likelihood(p, batch))(a.point)
        return a.value + a.score @ step + factor * (here - there - slope @ step)

    @property
    def num_rows(self) -> int:
        """N, the number of all rows."""
        if self.feed is not None:
            return self.feed.source.num_rows
        return len(jax.tree.leaves(self.data)[0])

    @property
    def is_minibatched(self) -> bool:
        return self.batch_size is not None

    def draw_rows(self, keys):
        if self.feed is None:
            return uniform_rows(keys, self.batch_size, self.num_rows)
        # Rows from the host are already in random order: a step takes the next batches of them.
        assert self.batch_size is not None
        batches = self.feed.cursor * len(keys) + jnp.arange(len(keys))
        return batches[:, None] * self.batch_size + jnp.arange(self.batch_size)[None, :]

    def on_rows(self, rows):
        return eqx.tree_at(lambda d: d.rows, self, rows, is_leaf=lambda leaf: leaf is None)

    def row_blocks(self, size, chosen):
        source = self.host_rows
        if source is None:
            yield from super(DataDensity, self._plain).row_blocks(size, chosen)
            return
        for i in sorted(chosen):
            data = source.between(i * size, min((i + 1) * size, source.num_rows))
            count = len(jax.tree.leaves(data)[0])
            data = jax.tree.map(lambda leaf: _filled(leaf, size), data)
            source.release()
            yield self._holding(data), np.arange(count)[None]

    def holding(self, rows):
        source = self.host_rows
        if source is None and not has_axis("data"):
            return self._plain, rows
        held = _at(self.data, jnp.asarray(rows)) if source is None else source.at(rows)
        return self._holding(held), np.arange(len(rows))

    @property
    def num_parts(self):
        return axis_size("data") if self.host_rows is None else 1

    def divided(self, rows):
        places = shard_rows(np.asarray(rows, np.int32))
        return self._batch(None), own_rows(self.data, places)

    def _holding(self, data: PyTree) -> AbstractDensity:
        """A density that holds these rows, on one device or to be divided."""
        if has_axis("data"):
            return self._batch(jax.tree.map(np.asarray, data))
        return dataclasses.replace(self._plain, data=jax.tree.map(jnp.asarray, data))

    def _batch(self, data: PyTree) -> BatchDensity:
        return BatchDensity(self.log_prior, self.log_likelihood, data, self.num_rows)

    @property
    def _plain(self) -> "DataDensity":
        return dataclasses.replace(self, control_variate=None, rows=None)

    def loaded(self, most_bytes):
        source = self.host_rows
        if source is None:
            return self
        row_bytes = _READ_BYTES / _num_readable(source)
        if source.num_rows * row_bytes > most_bytes:
            return None
        rows = source.between(0, source.num_rows)
        is_divided = has_axis("data") and source.num_rows % axis_size("data") == 0
        data = shard_rows(rows) if is_divided else jax.tree.map(jnp.asarray, rows)
        return dataclasses.replace(self, data=data, rows=None, feed=None)

    def with_data(self, change):
        return dataclasses.replace(self, data=change(self.data))

    @property
    def host_rows(self) -> Rows | None:
        return None if self.feed is None else self.feed.source

    def at_step(self, step):
        return self if self.feed is None else eqx.tree_at(lambda d: d.feed.cursor, self, step)

    @property
    def anchor(self) -> Point | None:
        return None if self.control_variate is None else self.control_variate.point

    def with_control_variate(self, point, num_newton):
        for _ in range(num_newton):
            slope = _sum_over_blocks(self.log_likelihood, point, self._blocks())[1]
            sample = self._with_many_rows()
            sample = dataclasses.replace(sample, control_variate=None, rows=None)
            point = _newton_step(sample, slope, jax.grad(self.log_prior)(point), point)
        sums = _sum_over_blocks(self.log_likelihood, point, self._blocks())
        value, score = (jnp.asarray(one, point.dtype) for one in sums)
        return dataclasses.replace(self, control_variate=ControlVariate(point, value, score))

    def _blocks(self) -> Iterator[PyTree]:
        """All rows, in blocks that fit in memory."""
        source = self.host_rows
        if source is None:
            yield self.data
            return
        count = max(1, _num_readable(source) // source.block_size)
        for first in range(0, source.num_blocks, count):
            last = min(first + count, source.num_blocks)
            blocks = [source.block(i) for i in range(first, last)]
            yield jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *blocks)

    def _with_many_rows(self) -> "DataDensity":
        """With a larger random sample of host rows: a minibatch is too small for a Hessian."""
        source = self.host_rows
        if source is None:
            return self
        rows = source.take(0, 0, min(source.num_rows, _num_readable(source)))
        return dataclasses.replace(self, data=jax.tree.map(jnp.asarray, rows))


def data_density(
    log_prior: Callable[[Point], Scalar],
    log_likelihood: Callable[[Point, PyTree], Scalar],
    data: PyTree | Rows,
    batch_size: int | None,
) -> DataDensity:
    """A density of rows in memory, or of host rows, of which it then holds a first minibatch."""
    is_fed = isinstance(data, Rows)
    data = data if is_fed else with_arrays(data)
    num_rows = data.num_rows if is_fed else count_rows(data)
    if is_fed and batch_size is None:
        raise ValueError(
            f"batch_size must be given for the {num_rows} rows of ksivi.Rows, which stay on the "
            "host, got None"
        )
    if batch_size is not None and as_count(batch_size, "batch_size") > num_rows:
        raise ValueError(
            f"batch_size must be at most the {num_rows} rows of data, got {batch_size}"
        )
    held = data.take(0, 0, batch_size or 0) if is_fed else data
    count_rows(held)
    return DataDensity(
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        data=jax.tree.map(jnp.asarray, held),
        rows=None,
        batch_size=batch_size,
        feed=Feed(jnp.zeros((), jnp.int32), data) if is_fed else None,
    )


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """As many rows as `size`: the first row is repeated."""
    if len(rows) == size:
        return rows
    return np.concatenate([rows, np.repeat(rows[:1], size - len(rows), axis=0)])


def _num_readable(source: Rows) -> int:
    """How many rows are read together."""
    block = jax.tree.leaves(source.block(0))
    return max(1, _READ_BYTES * len(block[0]) // sum(leaf.nbytes for leaf in block))


def _sum_over_blocks(
    log_likelihood: Callable, point: Point, blocks: Iterable[PyTree]
) -> tuple[float, Float[np.ndarray, " d"]]:
    """The log likelihood and its score over all rows, summed over blocks in double precision."""
    value, score = 0.0, np.zeros(len(point))
    for block in blocks:
        one, slope = _on_block(log_likelihood, point, block)
        value, score = value + float(one), score + np.asarray(slope, float)
    return value, score


def _newton_step(
    density: AbstractDensity, score: Float[np.ndarray, " d"], prior_score: Point, point: Point
) -> Point:
    """The point after one step of Newton's method.

    **Arguments:**

    - `density`: the log density, or an estimate of it, whose Hessian is used.
    - `score`, `prior_score`: the gradients of the log likelihood, over all rows, and of the prior.
    """
    total = score + np.asarray(prior_score, float)
    step = np.linalg.solve(np.asarray(_hessian(density, point), float), total)
    return jnp.asarray(np.asarray(point, float) - step, point.dtype)


@jit
def _on_block(log_likelihood, point: Point, block: PyTree) -> tuple[Array, Point]:
    with full_precision():
        return jax.value_and_grad(log_likelihood)(point, block)


@jit
def _hessian(density: AbstractDensity, point: Point) -> Float[Array, "d d"]:
    """The Hessian of the log density, by columns: all columns together need dim times the rows."""
    with full_precision():
        column = lambda e: jax.jvp(density.score, (point,), (e,))[1]  # noqa: E731
        return lax.map(column, jnp.eye(len(point), dtype=point.dtype))


@one_shot
def _at(data: PyTree, rows: RowIndices) -> PyTree:
    return jax.tree.map(lambda column: column[rows], data)
