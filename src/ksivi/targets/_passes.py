"""Passes over all rows of a target: sums in double precision, block by block."""

import math
import time
from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from .._core.compile import one_shot
from .._core.numerics import full_precision
from .._core.sharding import axis_size, on_each_part, shard
from ._density import AbstractDensity, Point
from ._evaluator import OutOfTime
from ._surrogate import CHUNK, Surrogate, surrogate

Points = Float[np.ndarray, "k d"]
Vector = Float[np.ndarray, " d"]
Matrix = Float[np.ndarray, "d d"]
Lines = Int[np.ndarray, "p b"]
Held = tuple[AbstractDensity, Lines]
"""A density that holds rows, and their indices in it, with one line for each part of the rows."""

_BLOCK = 2**16
"""The number of rows of a block, per device. What a pass holds grows with it, not with all rows."""
_MANY = 64
"""Points that are evaluated together. One point has a program of its own."""
_COLUMNS = 16
"""Columns of a Hessian that are computed together."""
_FEWEST_SPANS = 8
"""The smallest number of places of the host's rows from which a block of some rows is read."""
_SHORTEST, _LONGEST = 128, 512
"""A chunk whose length divides all rows leaves no rest, which would need programs of its own."""


class Passes:
    r"""Sums over all rows of a density with data, at some points.

    Blocks B partition the rows, and f_B is the unbiased estimate of f from the rows of B. So
    f = Σ_B |B|/N · f_B, and everything is expressed by estimates from blocks.

    **Attributes:**

    - `num_rows`: N.
    - `deadline`: a time of `time.perf_counter`, after which `OutOfTime` is raised.
    """

    def __init__(self, density: AbstractDensity, deadline: float = math.inf):
        assert density.num_rows is not None
        self.density, self.num_rows, self.deadline = density, density.num_rows, deadline
        length = self.num_rows // density.num_parts
        self._chunk = _chunk_length(length)
        num_chunks, devices = length // self._chunk, axis_size("data") // density.num_parts
        num_blocks = -(-num_chunks * self._chunk // (_BLOCK * devices))
        self._num_chunks = -(-num_chunks // num_blocks)  # of a block: all blocks are about as long
        self._size = self._chunk * self._num_chunks * density.num_parts

    def value(self, point: Vector) -> float:
        """f(a)."""
        return float(self._sum(point[None], point, is_relative=False)[0][0])

    def differences(self, x: Points, point: Vector) -> tuple[Float[np.ndarray, " k"], Points]:
        """f(x) − f(a) and ∇f(x), at some points x."""
        return self._sum(x, point, is_relative=True)

    def _sum(
        self, x: Points, point: Vector, *, is_relative: bool
    ) -> tuple[Float[np.ndarray, " k"], Points]:
        values, scores = np.zeros(len(x)), np.zeros(x.shape)
        for block, rows in self._blocks(self._all_rows(), point, is_relative):
            share = rows.size / self.num_rows
            for low in range(0, len(x), _MANY):
                part = x[low : low + _MANY]
                value, score = _evaluated(block, part)
                values[low : low + len(part)] += share * value
                scores[low : low + len(part)] += share * score
        return values, scores

    def hessian(self, point: Vector, most_rows: float = math.inf) -> Matrix:
        """∇²f(a); or its estimate from some rows that lie evenly over all, if there are more.

        At least one block of rows is used. The few rows that do not fill a chunk are left out.
        """
        total, count = np.zeros((len(point), len(point))), 0
        num_blocks = max(1, int(min(most_rows, self.num_rows) // self._size))
        is_partial = most_rows < self.num_rows and num_blocks < self._num_blocks
        held = self._some_rows(num_blocks) if is_partial else self._all_rows()
        for block, rows in self._blocks(held, point, True):
            if rows.shape[1] >= self._chunk:
                total += rows.size * np.asarray(_hessian(block, block.point), float)
                count += rows.size
        return (total + total.T) / (2 * count)

    def third_order(self, point: Vector, steps: Points) -> Float[np.ndarray, " n"]:
        r"""How large each row's part of f is, beyond second order, over some steps δ from a.

        c_i² = mean over δ of {[ℓᵢ(a + δ) − ℓᵢ(a − δ)]/2 − ∇ℓᵢ(a)ᵀδ}²
        """
        delta = jnp.asarray(steps, jnp.result_type(float))
        found = []
        for block, rows in self._blocks(self._all_rows(), point, True):
            sizes = np.asarray(_third_order(block, delta)).reshape(len(rows), -1)
            found.append(sizes[:, : rows.shape[1]])
        return np.concatenate(found, axis=1).ravel()

    def require_finite(self, point: Vector) -> None:
        """Raises `ValueError` if f or its gradient is not finite at a point, and names the rows."""
        value, score = self._sum(point[None], point, is_relative=False)
        if np.isfinite(value).all() and np.isfinite(score).all():
            return
        what, got = ("", value[0]) if not np.isfinite(value).all() else ("the gradient of ", "NaN")
        raise ValueError(
            f"{what}{self.density.given_as} must be finite over all {self.num_rows:,} rows at "
            f"{_shown(point)}, got {got}{_reason(self.density, point)}"
        )

    def _blocks(
        self, held: Iterable[Held], point: Vector, is_relative: bool
    ) -> Iterator[tuple[Surrogate, Lines]]:
        """Densities on blocks, and their rows. All but the last have one shape."""
        for density, lines in held:
            for rows in _full_and_rest(lines, self._chunk):
                if time.perf_counter() > self.deadline:
                    raise OutOfTime
                length = min(self._chunk, rows.shape[1])
                is_full = length == self._chunk
                chunks, weights = _padded(rows, length, self._num_chunks if is_full else 1)
                block = surrogate(
                    density, chunks, weights, point, is_bent=False, is_relative=is_relative
                )
                yield block, rows

    @property
    def _num_blocks(self) -> int:
        return -(-self.num_rows // self._size)

    def _all_rows(self) -> Iterator[Held]:
        """Blocks of consecutive rows."""
        return self.density.row_blocks(self._size, {*range(self._num_blocks)})

    def _some_rows(self, num_blocks: int) -> Iterator[Held]:
        """Blocks of rows that lie evenly over all."""
        source, size = self.density.host_rows, self._size
        if source is not None:
            for rows in _spans(self.num_rows, num_blocks, size, source.block_size):
                yield self._holding(rows)
            return
        for i in range(num_blocks):
            low, high = (self.num_rows * j // num_blocks for j in (i, i + 1))
            yield self._holding(low + _spread(high - low, size))

    def _holding(self, rows: Int[np.ndarray, " b"]) -> Held:
        density, places = self.density.holding(rows)
        return density, places.reshape(self.density.num_parts, -1)


def _chunk_length(num_rows: int) -> int:
    """A length near 256 that divides the number of rows, or else 256."""
    lengths = [c for c in range(_SHORTEST, _LONGEST + 1) if num_rows % c == 0]
    return min(lengths or [min(CHUNK, num_rows)], key=lambda c: abs(c - CHUNK))


def _spread(num_rows: int, count: int) -> Int[np.ndarray, " c"]:
    """One row of each of `count` equal parts, at random: data can be periodic."""
    edges = np.arange(count + 1) * num_rows // count
    return edges[:-1] + (np.random.default_rng(0).random(count) * np.diff(edges)).astype(int)


def _spans(
    num_rows: int, num_blocks: int, size: int, block_size: int
) -> Iterator[Int[np.ndarray, " c"]]:
    """Blocks of rows that the host reads: spans of consecutive rows that lie evenly over all.

    The host reads its own blocks as wholes. A span is one of those, or the beginning of one.
    """
    per_block = max(_FEWEST_SPANS, -(-size // block_size))
    length, num_spans, num_read = (
        -(-size // per_block),
        num_blocks * per_block,
        num_rows // block_size,
    )
    if num_spans <= num_read:
        begins = block_size * np.linspace(0, num_read - 1, num_spans).astype(int)
    else:  # the blocks of the host are few and long
        begins = np.linspace(0, num_rows - length, num_spans).astype(int)
    for some in begins.reshape(num_blocks, per_block):
        yield (some[:, None] + np.arange(length)).ravel()[:size]


def _shown(point: Vector) -> str:
    return f"x = [{', '.join(f'{one:.4g}' for one in point[:4])}{', …' * (len(point) > 4)}]"


def _reason(density: AbstractDensity, point: Vector) -> str:
    try:
        found = density.explain(jnp.asarray(point, jnp.result_type(float)))
    except Exception:  # a user's function may raise anything; the message is then shorter
        return ""
    return f": {found}" if found else ""


def _full_and_rest(lines: Lines, length: int) -> list[Lines]:
    """Rows that fill chunks of this length, and the rest."""
    full = lines.shape[1] // length * length
    return [rows for rows in (lines[:, :full], lines[:, full:]) if rows.size]


def _padded(lines: Lines, length: int, num_chunks: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of each line in chunks, and their weights. What is filled up has weight 0."""
    chunks = lines.reshape(len(lines), -1, length)
    num_lines, count, _ = chunks.shape
    weights = np.zeros((num_lines, num_chunks))
    weights[:, :count] = 1 / (num_lines * count)
    missing = np.repeat(chunks[:, :1], num_chunks - count, axis=1)
    return np.concatenate([chunks, missing], axis=1).reshape(-1, length), weights.ravel()


def _evaluated(block: Surrogate, x: Points) -> tuple[np.ndarray, np.ndarray]:
    """Values and scores at up to 64 points."""
    is_alone = len(x) == 1 and len(block.weights) > axis_size("data")
    size = 1 if is_alone else _MANY
    padded = np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])
    value, score = _values(block, jnp.asarray(padded, block.point.dtype))
    return np.asarray(value, float)[: len(x)], np.asarray(score, float)[: len(x)]


@one_shot
def _values(block: Surrogate, x: Float[Array, "k d"]) -> tuple[Array, Array]:
    with full_precision():
        return jax.vmap(block.value_and_score)(shard(x, "samples"))


@one_shot
def _hessian(density: AbstractDensity, point: Point) -> Float[Array, "d d"]:
    """The Hessian, by columns: all columns together would need dim times the rows."""
    with full_precision():
        column = lambda e: jax.jvp(density.score, (point,), (e,))[1]  # noqa: E731
        eye = jnp.eye(len(point), dtype=point.dtype)
        return lax.map(column, eye, batch_size=min(_COLUMNS, len(point)))


def hessian_of(density: Surrogate, point: Vector) -> Matrix:
    """The Hessian of one density with few rows."""
    found = np.asarray(_hessian(density, jnp.asarray(point, density.point.dtype)), float)
    return (found + found.T) / 2


@one_shot
def _third_order(block: Surrogate, steps: Float[Array, "k d"]) -> Float[Array, "p q c"]:
    """The sizes of rows beyond second order, from estimates by one row, in parts and chunks."""

    def of_row(row: PyTree) -> Array:
        value = block.density.on_rows(jax.tree.map(lambda one: one[None], row)).value
        a = block.point

        def odd(step: Point) -> Array:
            slope = jax.jvp(value, (a,), (step,))[1]
            return 0.5 * (value(a + step) - value(a - step)) - slope

        return jnp.sqrt(jnp.mean(jax.vmap(odd)(steps) ** 2))

    with full_precision():
        return on_each_part(lambda rows: lax.map(jax.vmap(of_row), rows), block.rows)
