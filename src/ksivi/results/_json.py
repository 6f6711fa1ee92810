"""Diagnostics to JSON and back."""

import dataclasses
import math
import types
import typing
from typing import Any

import numpy as np

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


def diagnostics_from_json(found: dict[str, Any]) -> Diagnostics | None:
    """What `diagnostics_to_json` wrote; None for a kind that this library does not know."""
    kind = _KINDS.get(found.get("kind", ""))
    return None if kind is None else _restore(kind, found)


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


def _restore(kind: Any, value: Any) -> Any:
    """The value of a field of this type."""
    if value is None:
        return float("nan") if kind is float else None
    members = [one for one in typing.get_args(kind) if one is not type(None)]
    if typing.get_origin(kind) is tuple:
        return tuple(_restore(members[0], one) for one in value)
    if isinstance(kind, types.UnionType):
        return _restore(members[0], value) if len(members) == 1 else value
    if not hasattr(kind, "__dataclass_fields__"):
        return kind(value)
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.name in value]
    return kind(**{name: _restore(hints[name], value[name]) for name in names})
