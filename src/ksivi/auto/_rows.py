"""Rows of arrays, and of tuples of arrays with one row per path, Gaussian or chain."""

from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int

Rows = TypeVar("Rows")


def rows(parts: Rows, chosen: np.ndarray) -> Rows:
    """The chosen rows of arrays, or of tuples of arrays."""
    if isinstance(parts, tuple):
        return type(parts)(*(rows(part, chosen) for part in parts))
    return parts[chosen]  # type: ignore[index]


def put(parts: Rows, ids: Int[np.ndarray, " k"], new: Rows) -> None:
    """Writes new values into some rows."""
    if isinstance(parts, tuple):
        for part, one in zip(parts, new, strict=True):  # type: ignore[call-overload]
            put(part, ids, one)
    else:
        parts[ids] = new  # type: ignore[index]


def where(chosen: Bool[np.ndarray, " m"], first: Rows, second: Rows) -> Rows:
    """The first in the chosen rows, the second in the others."""
    if isinstance(first, tuple):
        pairs = zip(first, second, strict=True)  # type: ignore[call-overload]
        return type(first)(*(where(chosen, a, b) for a, b in pairs))
    return np.where(chosen.reshape(-1, *[1] * (first.ndim - 1)), first, second)  # type: ignore
