"""Rows of data that stay where they are, on disk or in memory, and are read a few at a time."""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import PyTree

from .._core.checks import as_count, describe

Block: TypeAlias = PyTree
"""Arrays of some rows."""


class Rows:
    """Data larger than memory, for `Target.from_data`: rows are read from the host while training goes on.

    Each epoch has every row once, in an order of its own. Blocks of consecutive rows are shuffled, and then the rows of
    a pool of blocks among each other, so that a minibatch has rows from `pool` random places. With `block_size=1` the
    order of rows is uniformly random, and so are the places on disk that are read. Runs of a batch of keys share rows.

    **Arguments:**

    - `arrays`: a pytree of what has a `shape`, a `dtype` and slices: `numpy.load(path, mmap_mode="r")`, arrays of Zarr,
        data sets of HDF5, NumPy arrays. One row an observation.
    - `block_size`: consecutive rows that are read at once.
    - `pool`: blocks whose rows are shuffled together, and held in memory.

    ```python
    rows = ksivi.Rows({"x": np.zeros((1_000, 3)), "y": np.zeros(1_000)})
    ```
    """

    def __init__(self, arrays: PyTree, *, block_size: int = 1_024, pool: int = 64):
        leaves = jax.tree.leaves(arrays)
        for leaf in leaves:
            if not all(hasattr(leaf, name) for name in ("shape", "dtype", "__getitem__")) or not leaf.shape:
                raise ValueError(f"arrays must have a shape, a dtype and rows, got {describe(leaf)}")
        lengths = sorted({leaf.shape[0] for leaf in leaves})
        if len(lengths) != 1 or lengths[0] == 0:
            raise ValueError(f"arrays must have the same number of rows, and some, got {lengths}")
        self._setup(
            lengths[0], lambda low, high: jax.tree.map(lambda a: np.asarray(a[low:high]), arrays), block_size, pool
        )

    @classmethod
    def parquet(cls, path: str | os.PathLike, columns: list[str] | None = None, *, pool: int = 64) -> "Rows":
        """The columns of a Parquet file as a dict of arrays; its row groups are the blocks, and of one size."""
        file = _parquet().ParquetFile(path)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        if not sizes or set(sizes[:-1]) - {sizes[0]} or sizes[-1] > sizes[0]:
            raise ValueError(f"path must be a Parquet file with row groups of one size, got sizes {sorted(set(sizes))}")

        def read(low: int, high: int) -> dict[str, np.ndarray]:
            table = file.read_row_group(low // sizes[0], columns=columns)
            return {name: table[name].to_numpy() for name in table.column_names}

        rows = cls.__new__(cls)
        rows._setup(sum(sizes), read, sizes[0], pool)
        return rows

    def _setup(self, num_rows: int, read: Callable[[int, int], Block], block_size: int, pool: int) -> None:
        self.num_rows = num_rows
        self.block_size, self.pool = min(as_count(block_size, "block_size"), num_rows), as_count(pool, "pool")
        self._read = read
        self._pool_of = functools.lru_cache(maxsize=2)(self._make_pool)
        self._order_of = functools.lru_cache(maxsize=2)(self._make_order)

    @property
    def num_blocks(self) -> int:
        return -(-self.num_rows // self.block_size)

    def block(self, i: int) -> Block:
        """Consecutive rows, the i-th block of them."""
        low = i * self.block_size
        return jax.tree.map(_as_default, self._read(low, min(low + self.block_size, self.num_rows)))

    def take(self, seed: int, position: int, count: int) -> Block:
        """Rows from a position on in the endless sequence of shuffled epochs, which the seed decides."""
        parts = []
        while count > 0:
            epoch, offset = divmod(position, self.num_rows)
            index, inside = divmod(offset, self.pool * self.block_size)
            part = jax.tree.map(lambda a: a[inside : inside + count], self._pool_of(seed, epoch, index))  # noqa: B023
            parts.append(part)
            got = len(jax.tree.leaves(part)[0])
            position, count = position + got, count - got
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def _make_order(self, seed: int, epoch: int) -> np.ndarray:
        """The blocks in an epoch's order; a shorter one stays at the end, so that all pools but the last are equal."""
        full = self.num_rows // self.block_size
        order = np.random.default_rng((seed, epoch)).permutation(full)
        return np.append(order, np.arange(full, self.num_blocks))

    def _make_pool(self, seed: int, epoch: int, index: int) -> Block:
        chosen = self._order_of(seed, epoch)[index * self.pool : (index + 1) * self.pool]
        rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[self.block(int(i)) for i in chosen])
        mixed = np.random.default_rng((seed, epoch, index)).permutation(len(jax.tree.leaves(rows)[0]))
        return jax.tree.map(lambda a: a[mixed], rows)


def _as_default(array: np.ndarray) -> np.ndarray:
    """In JAX's own precision, since twice the bytes would be held for nothing."""
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'ksivi[parquet]'") from error
    return pyarrow.parquet
