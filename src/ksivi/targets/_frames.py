"""Data frames and series as arrays: pandas, polars, and what converts itself to NumPy."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree


def with_arrays(tree: PyTree) -> PyTree:
    """The tree with a dict of arrays for each data frame, and an array for each series.

    Columns that are not numbers are left out; a series that is not numbers stays as it is.
    """
    return jax.tree.map(_converted, tree)


@contextlib.contextmanager
def explaining_columns(data: PyTree) -> Iterator[None]:
    """Adds to an error of a function of the data that it gets them by column, if it does."""
    try:
        yield
    except ValueError as error:
        parts = jax.tree.leaves(data, is_leaf=lambda part: isinstance(part, dict))
        columns = next((part for part in parts if isinstance(part, dict)), None)
        if columns is None or not isinstance(
            error.__cause__, AttributeError | KeyError | TypeError
        ):
            raise
        names = ", ".join(map(repr, columns))
        raise ValueError(
            f"{error}; log_likelihood gets columns as a dict of arrays, here {names}; for a matrix "
            "of a data frame's numbers give data.to_numpy()"
        ) from error.__cause__


def is_frame(value: Any) -> bool:
    """Whether the value is a data frame: it has columns by name and converts itself to NumPy."""
    return _is_table(value) and hasattr(value, "columns") and hasattr(value, "__getitem__")


def text_columns(frame: Any) -> list[str]:
    """The names of the columns that are not numbers."""
    return [str(name) for name in frame.columns if _numbers(frame[name]) is None]


def _converted(leaf: Any) -> Any:
    if is_frame(leaf):
        found = {name: _numbers(leaf[name]) for name in leaf.columns}
        return {name: column for name, column in found.items() if column is not None}
    if not _is_table(leaf):
        return leaf
    numbers = _numbers(leaf)
    return leaf if numbers is None else numbers


def _is_table(value: Any) -> bool:
    return hasattr(value, "to_numpy") and not isinstance(value, jax.Array | np.ndarray | type)


def _numbers(column: Any) -> np.ndarray | None:
    """The column as an array of numbers, or None if it holds anything else."""
    found = np.asarray(column.to_numpy())
    if found.dtype.kind in "biuf":
        return found
    if found.dtype != object:
        return None
    try:  # a nullable column, or numbers as objects
        return np.asarray(found, np.float64)
    except (TypeError, ValueError):
        return None
