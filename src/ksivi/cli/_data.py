"""Data from a file, by name, for the arguments of a model."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from .._core.files import UNREADABLE, read_npz

Data = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class NotNumbers:
    """An entry that no model can take, and the reason. It is an error only if the model takes it."""

    reason: str


_SMALL = 2**15
"""Whole numbers below this become integers.

Larger ones stay floats: JAX's 32 bits overflow if they are squared.
"""


def read_data(path: Path) -> Data:
    """The columns of a CSV file with a header, or the entries of a JSON object or an npz file.

    Entries that are not numbers are `NotNumbers`.
    """
    readers = {".csv": _read_csv, ".json": _read_json, ".npz": _read_npz}
    if path.suffix.lower() not in readers:
        raise ValueError(f"--data must be a .csv, .json or .npz file, got {path}")
    if not path.is_file():
        raise ValueError(f"--data must be an existing file, got {path}")
    try:
        found = readers[path.suffix.lower()](path)
    except UNREADABLE as error:
        raise ValueError(f"--data: {path} cannot be read: {error}") from error
    return {name: _checked(name, values) for name, values in found.items()}


def numbers_of(data: Data) -> Data:
    """The data, all of which must be numbers."""
    for values in data.values():
        if isinstance(values, NotNumbers):
            raise ValueError(f"--data: {values.reason}")
    return data


def _checked(name: str, values: Any) -> Any:
    if isinstance(values, NotNumbers):
        return values
    try:
        is_numbers = np.asarray(values).dtype.kind in "biuf"
    except ValueError:  # lists of different lengths
        is_numbers = False
    reason = f"{name!r} must be numbers, not null, text or lists of different lengths"
    return values if is_numbers else NotNumbers(reason)


def _read_csv(path: Path) -> Data:
    with path.open(encoding="utf-8-sig", newline="") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    names = [name.strip() for name in names]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise ValueError(f"its columns must be separated by commas, but its header is {names[0]!r}")
    if not rows or "" in names or len(set(names)) < len(names):
        raise ValueError(
            f"it must have a header of different names, and rows below; its header is {','.join(names)}"
        )
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(
                f"the header has {len(names)} columns, but row {i + 1} below it has {len(row)}"
            )
    return {
        name: _as_column(name, cells)
        for name, cells in zip(names, zip(*rows, strict=True), strict=True)
    }


def _as_column(name: str, cells: tuple[str, ...]) -> np.ndarray | NotNumbers:
    found = []
    for i, text in enumerate(cells):
        try:
            found.append(float(text))
        except ValueError:
            what = f"has {text!r} in row {i + 1} below the header, which is not a number"
            if not text.strip():
                what = (
                    f"has an empty cell in row {i + 1} below the header: fill it or remove the row"
                )
            return NotNumbers(f"column {name!r} {what}")
    return _whole(np.asarray(found))


def _whole(column: np.ndarray) -> np.ndarray:
    """The column as integers if all its numbers are small and whole."""
    is_whole = np.all(np.abs(column) < _SMALL) and np.all(column == np.round(column))
    return column.astype(int) if is_whole else column


def _read_json(path: Path) -> Data:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it must contain one object of numbers and lists by name")
    return {name: _as_json_value(name, value) for name, value in found.items()}


def _as_json_value(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    try:
        return np.asarray(value)
    except ValueError:
        return NotNumbers(f"{name!r} has lists of different lengths")


def _read_npz(path: Path) -> Data:
    return dict(read_npz(path))
