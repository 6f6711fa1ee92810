"""Rows of data that stay on the host, on disk or in memory, and are read in shuffled blocks."""

import functools
import math
import mmap
import os
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import PyTree

from .._core.checks import as_count, describe, holds_numbers
from .._core.fingerprints import Digest, add_array
from ._frames import columns_of, with_arrays

Block: TypeAlias = PyTree
"""A pytree of arrays with the same number of rows."""

_SPAN, _HASHED = 2**24, 2**34
"""Bytes of rows that are read together for a digest, and the most bytes that are read in all."""


class Rows:
    """Data larger than memory, for `Target.from_data`: rows are read from the host during training.

    Each epoch uses every row once, in a new random order. Blocks of consecutive rows are shuffled,
    and then the rows within a pool of blocks, so that a minibatch has rows from `pool` random
    places. With `block_size=1` the order of rows is uniformly random, but the disk is read at
    random places. The runs of a batch of keys share rows.

    **Arguments:**

    - `arrays`: a pytree of array-likes with a `shape`, a `dtype` and slices: NumPy arrays,
        `numpy.load(path, mmap_mode="r")`, Zarr arrays, HDF5 datasets. One row per observation.
    - `block_size`: the number of consecutive rows that are read together.
    - `pool`: the number of blocks that are shuffled together and held in memory.

    ```python
    rows = ksivi.Rows({"x": np.zeros((1_000, 3)), "y": np.zeros(1_000)})
    ```
    """

    _maps: list[np.memmap]
    columns: tuple[str, ...] = ()
    """The columns, if the rows are of a data frame."""

    def __init__(self, arrays: PyTree, *, block_size: int = 1_024, pool: int = 64):
        self.columns, arrays = columns_of(arrays), with_arrays(arrays)
        leaves = jax.tree.leaves(arrays)
        for leaf in leaves:
            parts = ("shape", "dtype", "__getitem__")
            if not all(hasattr(leaf, name) for name in parts) or not leaf.shape:
                raise ValueError(
                    f"arrays must have a shape, a dtype and rows, got {describe(leaf)}; make lists "
                    "into arrays with numpy.array"
                )
            if not holds_numbers(leaf.dtype):
                raise ValueError(
                    f"arrays must hold numbers, got {describe(leaf)}; make text into integers"
                )
        if not leaves:
            raise ValueError("arrays must have at least one column of numbers, got none")
        lengths = sorted({leaf.shape[0] for leaf in leaves})
        if len(lengths) != 1 or lengths[0] == 0:
            raise ValueError(f"arrays must have the same number of rows, at least 1, got {lengths}")
        self._setup(
            lengths[0],
            lambda low, high: jax.tree.map(lambda a: np.asarray(a[low:high]), arrays),
            block_size,
            pool,
        )
        self._maps = [leaf for leaf in leaves if isinstance(leaf, np.memmap) and leaf.mode == "r"]
        row_bytes = sum(math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in leaves)
        self._span = max(1, min(lengths[0], _SPAN // max(1, row_bytes)))

    @classmethod
    def parquet(
        cls, path: str | os.PathLike, columns: list[str] | None = None, *, pool: int = 64
    ) -> "Rows":
        """The columns of a Parquet file as a dict of arrays.

        Its row groups are the blocks. All but the last must have the same size.
        """
        try:
            file = _parquet().ParquetFile(path)
        except OSError as error:
            raise ValueError(f"path must be a Parquet file, got {str(path)!r}: {error}") from error
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        if not sizes or set(sizes[:-1]) - {sizes[0]} or sizes[-1] > sizes[0]:
            raise ValueError(
                "path must be a Parquet file with row groups of one size, got sizes "
                f"{sorted(set(sizes))}"
            )

        def read(low: int, high: int) -> dict[str, np.ndarray]:
            table = file.read_row_group(low // sizes[0], columns=columns)
            return {name: table[name].to_numpy() for name in table.column_names}

        rows = cls.__new__(cls)
        rows._setup(sum(sizes), read, sizes[0], pool)
        return rows

    def _setup(
        self, num_rows: int, read: Callable[[int, int], Block], block_size: int, pool: int
    ) -> None:
        self.num_rows = num_rows
        self.block_size, self.pool = (
            min(as_count(block_size, "block_size"), num_rows),
            as_count(pool, "pool"),
        )
        self._read, self._span = read, self.block_size
        self._maps = []
        self._pool_of = functools.lru_cache(maxsize=2)(self._make_pool)
        self._last_block = functools.lru_cache(maxsize=1)(self.block)
        self._order_of = functools.lru_cache(maxsize=2)(self._make_order)

    @property
    def num_blocks(self) -> int:
        return -(-self.num_rows // self.block_size)

    def block(self, i: int) -> Block:
        """The i-th block of consecutive rows."""
        low = i * self.block_size
        return jax.tree.map(_as_default, self._read(low, min(low + self.block_size, self.num_rows)))

    def between(self, low: int, high: int) -> Block:
        """Consecutive rows."""
        first, last = low // self.block_size, -(-high // self.block_size)
        begin, blocks = first * self.block_size, [self._last_block(i) for i in range(first, last)]
        joined = blocks[0] if len(blocks) == 1 else _joined(blocks)
        return jax.tree.map(lambda leaf: np.array(leaf[low - begin : high - begin]), joined)

    def release(self) -> None:
        """Gives the pages of memory maps back, which count as memory of this process.

        The system may keep them, and they are read again when they are needed.
        """
        for array in self._maps:
            if hasattr(array._mmap, "madvise") and hasattr(mmap, "MADV_DONTNEED"):  # type: ignore[attr-defined]
                array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]

    def at(self, rows: np.ndarray) -> Block:
        """The rows with these indices, in their order. Each block is read once."""
        order = np.argsort(rows, kind="stable")
        numbers, begins = np.unique(rows[order] // self.block_size, return_index=True)
        parts = []
        for i, chosen in zip(numbers, np.split(rows[order], begins[1:]), strict=True):
            inside = chosen - int(i) * self.block_size
            parts.append(jax.tree.map(lambda leaf, at=inside: leaf[at], self.block(int(i))))
            if len(parts) % self.pool == 0:
                self.release()
        self.release()
        back = np.argsort(order, kind="stable")
        return jax.tree.map(lambda leaf: leaf[back], _joined(parts))

    def add_to(self, digest: Digest) -> None:
        """Adds the rows and their order to a digest.

        All rows count. Of more than 16 GiB only spans that lie evenly over all rows are read.
        """
        first = jax.tree.leaves(self._read(0, min(self._span, self.num_rows)))
        count, most = -(-self.num_rows // self._span), _HASHED // sum(one.nbytes for one in first)
        digest.update(f"{self.num_rows} {self.block_size} {self.pool} {count}".encode())
        for i in np.unique(np.linspace(0, count - 1, min(count, max(2, most))).astype(int)):
            low = int(i) * self._span
            for leaf in jax.tree.leaves(self._read(low, min(low + self._span, self.num_rows))):
                add_array(digest, leaf)

    def take(self, seed: int, position: int, count: int) -> Block:
        """`count` rows from a position in the endless sequence of shuffled epochs of this seed."""
        parts = []
        while count > 0:
            epoch, offset = divmod(position, self.num_rows)
            index, inside = divmod(offset, self.pool * self.block_size)
            rows, chosen = self._pool_of(seed, epoch, index), slice(inside, inside + count)
            part = jax.tree.map(lambda a, chosen=chosen: a[chosen], rows)
            parts.append(part)
            got = len(jax.tree.leaves(part)[0])
            position, count = position + got, count - got
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _make_order(self, seed: int, epoch: int) -> np.ndarray:
        """The order of blocks in an epoch. A shorter block stays last, so that pools are equal."""
        full = self.num_rows // self.block_size
        order = np.random.default_rng((seed, epoch)).permutation(full)
        return np.append(order, np.arange(full, self.num_blocks))

    def _make_pool(self, seed: int, epoch: int, index: int) -> Block:
        chosen = self._order_of(seed, epoch)[index * self.pool : (index + 1) * self.pool]
        rows = jax.tree.map(
            lambda *leaves: np.concatenate(leaves), *[self.block(int(i)) for i in chosen]
        )
        mixed = np.random.default_rng((seed, epoch, index)).permutation(
            len(jax.tree.leaves(rows)[0])
        )
        return jax.tree.map(lambda a: a[mixed], rows)


def _joined(blocks: list[Block]) -> Block:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)


def _as_default(array: np.ndarray) -> np.ndarray:
    """In JAX's default precision: double precision would take twice the memory for nothing."""
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'ksivi[parquet]'") from error
    return pyarrow.parquet
