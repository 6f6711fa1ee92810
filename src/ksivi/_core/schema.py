"""The check of values from files: what is read has the types that the code expects, or is refused.

The expected types are annotations, such as those of a dataclass or a `TypedDict`.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any

from .checks import describe

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object with named entries",
    type(None): "null",
}
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Numbers that JSON has no form for."""


def conform(value: Any, kind: Any, where: str) -> Any:
    """The value from JSON as this type. Raises `ValueError` with the place if it is another type.

    A list becomes a tuple where one is expected, and an object a dataclass. Entries that the type
    does not name are ignored. A number that is not known is null in JSON and becomes NaN. Whole
    numbers have at most 64 bits.

    **Arguments:**

    - `kind`: `Any`, `None`, `bool`, `int`, `float`, `str`, a `Literal`, a dataclass, a `TypedDict`,
        or lists, tuples, dicts and unions of them.
    - `where`: the name of the value, for the message.
    """
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _as_member(value, members, where)
    if origin is typing.Literal:
        return _require(value in members and isinstance(value, str), value, where, members)
    if origin in (list, tuple):
        items = _require(isinstance(value, list | tuple), value, where, [list])
        return origin(conform(one, members[0], f"{where}[{i}]") for i, one in enumerate(items))
    if origin is dict:
        named = _require(isinstance(value, dict), value, where, [dict])
        return {
            # A name in a file could hold control codes of a terminal.
            name: conform(one, members[1], f"{where}.{name if name.isidentifier() else repr(name)}")
            for name, one in named.items()
        }
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return _as_fields(value, kind, where)
    return _as_plain(value, kind, where)


def _as_fields(value: Any, kind: Any, where: str) -> Any:
    """A dataclass, or the entries of a `TypedDict`."""
    _require(isinstance(value, dict), value, where, [dict])
    names, needed = _names(kind)
    if missing := sorted(needed - set(value)):
        raise ValueError(f"{where} must have an entry {missing[0]!r}, but it has none")
    hints = typing.get_type_hints(kind)
    found = {
        name: conform(value[name], hints[name], f"{where}.{name}")
        for name in names
        if name in value
    }
    return kind(**found)


def _names(kind: Any) -> tuple[list[str], set[str]]:
    """The entries of a dataclass or a `TypedDict`, and those that cannot be missing."""
    if typing.is_typeddict(kind):
        return list(kind.__annotations__), set(kind.__required_keys__)
    fields, nothing = dataclasses.fields(kind), dataclasses.MISSING
    needed = {one.name for one in fields if one.default is one.default_factory is nothing}
    return [one.name for one in fields], needed


def _as_member(value: Any, members: tuple, where: str) -> Any:
    if value is None and type(None) in members:
        return None
    members = tuple(one for one in members if one is not type(None))
    if len(members) == 1:
        return conform(value, members[0], where)
    for member in members:
        try:
            return conform(value, member, where)
        except ValueError:
            continue
    return _require(False, value, where, members)


def _as_plain(value: Any, kind: Any, where: str) -> Any:
    if kind is float and (value is None or value in _NOT_FINITE):
        return float("nan" if value is None else value)
    is_bool, is_whole = isinstance(value, bool), isinstance(value, float) and value.is_integer()
    fits = {
        float: isinstance(value, int | float) and not is_bool,
        int: ((isinstance(value, int) and not is_bool) or is_whole) and abs(value) < 2**63,
    }.get(kind, isinstance(value, kind))
    _require(fits, value, where, [kind])
    try:
        return value if kind in (type(None), bool, str) else kind(value)
    except OverflowError:
        return _require(False, value, where, [kind])


def _require(fits: bool, value: Any, where: str, kinds: Iterable[Any]) -> Any:
    if not fits:
        expected = " or ".join(_WORDS.get(kind, repr(kind)) for kind in kinds)
        raise ValueError(f"{where} must be {expected}, got {describe(value)}")
    return value
