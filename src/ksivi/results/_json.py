"""Diagnostics to JSON and back."""

import dataclasses
import math
import typing
from typing import Any

import numpy as np

from .._core.schema import conform
from ._diagnostics import (
    ChainDiagnostics,
    Diagnostics,
    FitDiagnostics,
    ParticleDiagnostics,
    Rows,
    TrainDiagnostics,
    in_words,
)

_KINDS: dict[str, type[Diagnostics]] = {
    one.kind: one
    for one in (TrainDiagnostics, ParticleDiagnostics, ChainDiagnostics, FitDiagnostics)
}


def diagnostics_to_json(diagnostics: Diagnostics) -> dict[str, Any]:
    """The fields by name, and the kind of method. NaN is null; an infinity is a string."""
    return {"kind": diagnostics.kind, **_to_json(diagnostics)}


def diagnostics_from_json(found: Any) -> Diagnostics | None:
    """What `diagnostics_to_json` wrote; None for a kind that this library does not know.

    Raises `ValueError` if a number has another type.
    """
    named = conform(found, dict[str, Any], "diagnostics")
    kind = _KINDS.get(conform(named.get("kind", ""), str, "diagnostics.kind"))
    return None if kind is None else conform(named, kind, "diagnostics")


def rows_of(found: dict[str, Any]) -> Rows:
    """Labels and texts of diagnostics in JSON, also of a kind that this library does not know."""
    known = diagnostics_from_json(found)
    if known is not None:
        return known.rows()
    shown = {name: value for name, value in found.items() if name != "kind" and value is not None}
    return [(name.replace("_", " "), in_words(value)) for name, value in shown.items()]


def _to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        found = {name: _to_json(getattr(value, name)) for name in _names(value)}
        # A number that is always there is null if it is not known; None means that there is none.
        return {
            name: None if one == "NaN" and hints[name] is float else one
            for name, one in found.items()
        }
    if isinstance(value, tuple | list):
        return [_to_json(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else _not_finite(float(value))
    if value is None or isinstance(value, bool | int | str):
        return value
    return int(value) if isinstance(value, np.integer) else str(value)


def _names(value: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(value)]


def _not_finite(value: float) -> str:
    """A string that Python's `float` and JavaScript's `Number` both read."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
