"""Data frames and series as arrays: pandas, polars, and what converts itself to NumPy."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

_BOOLEANS = {bool, np.bool_}


def with_arrays(tree: PyTree) -> PyTree:
    """The tree with a dict of arrays for each data frame, and an array for each series.

    Columns that are not numbers are left out; a series that is not numbers stays as it is. Missing
    numbers are NaN. Booleans have no NaN: a column with missing ones raises `ValueError`.
    """
    return jax.tree.map(_converted, tree)


def columns_of(tree: PyTree) -> tuple[str, ...]:
    """The columns of the first data frame of the tree that are numbers; none without a frame."""
    frame = next((leaf for leaf in jax.tree.leaves(tree) if is_frame(leaf)), None)
    return () if frame is None else tuple(with_arrays(frame))


@contextlib.contextmanager
def explaining_columns(names: tuple[str, ...]) -> Iterator[None]:
    """Adds to an error of a function of the data that it gets a data frame by these columns.

    Without columns there was no data frame, and the error stays as it is.
    """
    try:
        yield
    except ValueError as error:
        if not names or not isinstance(error.__cause__, AttributeError | KeyError | TypeError):
            raise
        raise ValueError(
            f"{error}; log_likelihood gets columns as a dict of arrays, here "
            f"{', '.join(map(repr, names))}; for a matrix of a data frame's numbers give "
            "data.to_numpy(); columns of text are left out: code groups as numbers, for example with "
            "pandas.get_dummies"
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
    # Text of digits is no number: a zip code, or the name of a group.
    if found.dtype != object or any(isinstance(value, str | bytes) for value in found):
        return None
    # A nullable column, or numbers as objects.
    is_missing = np.array([_is_missing(value) for value in found], bool)
    _require_no_gaps(found, is_missing, getattr(column, "name", None))
    try:
        return np.asarray(np.where(is_missing, np.nan, found), np.float64)
    except (TypeError, ValueError):
        return None


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or the NA of pandas, which compares with nothing."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ == "NAType"


def _require_no_gaps(column: np.ndarray, is_missing: np.ndarray, name: Any) -> None:
    """Raises `ValueError` if booleans are missing: as a condition, NaN would count as true."""
    kinds = {type(value) for value in column[~is_missing]}
    if kinds and kinds <= _BOOLEANS and is_missing.any():
        rows = np.flatnonzero(is_missing)
        raise ValueError(
            f"the column {name!r} must have no missing values, because it holds booleans, got missing "
            f"values in {len(rows):,} of {len(column):,} rows, first in row {rows[0]}, counted from 0: "
            "fill these values, or leave out the rows or the column"
        )
