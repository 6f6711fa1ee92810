"""Data from a file, by name, for the arguments of a model."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from .._core.files import UNREADABLE, read_npz

Data = dict[str, Any]

_SMALL = 2**15
"""Whole numbers below this become integers.

Larger ones stay floats: JAX's 32 bits overflow if they are squared.
"""


def read_data(path: Path) -> Data:
    """The columns of a CSV file with a header, or the entries of a JSON object or an npz file."""
    readers = {".csv": _read_csv, ".json": _read_json, ".npz": _read_npz}
    if path.suffix.lower() not in readers:
        raise ValueError(f"--data must be a .csv, .json or .npz file, got {path}")
    if not path.is_file():
        raise ValueError(f"--data must be an existing file, got {path}")
    try:
        found = readers[path.suffix.lower()](path)
    except UNREADABLE as error:
        raise ValueError(f"--data: {path} cannot be read: {error}") from error
    for name, values in found.items():
        if np.asarray(values).dtype.kind not in "biuf":
            raise ValueError(
                f"--data: {name!r} in {path} must be numbers, not null, text or uneven lists"
            )
    return found


def _read_csv(path: Path) -> Data:
    with path.open(encoding="utf-8-sig", newline="") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    names = [name.strip() for name in names]
    if not rows or "" in names or len(set(names)) < len(names):
        raise ValueError(
            f"it must have a header of different names, and rows below; its header is {','.join(names)}"
        )
    columns: dict[str, list[float]] = {name: [] for name in names}
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(
                f"the header has {len(names)} columns, but row {i + 1} below it has {len(row)}"
            )
        for name, text in zip(names, row, strict=True):
            columns[name].append(_as_number(text, name, i + 1))
    return {name: _whole(np.asarray(column)) for name, column in columns.items()}


def _as_number(text: str, name: str, row: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"column {name!r} has {text!r} in row {row}, which is not a number"
        ) from None


def _whole(column: np.ndarray) -> np.ndarray:
    """The column as integers if all its numbers are small and whole."""
    is_whole = np.all(np.abs(column) < _SMALL) and np.all(column == np.round(column))
    return column.astype(int) if is_whole else column


def _read_json(path: Path) -> Data:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it must contain one object of numbers and lists by name")
    return {
        name: np.asarray(value) if isinstance(value, list) else value
        for name, value in found.items()
    }


def _read_npz(path: Path) -> Data:
    return dict(read_npz(path))
