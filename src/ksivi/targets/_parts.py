"""Takes a function apart: its code, the arrays that it reads, and all other values."""

import dis
import functools
import sys
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_LIBRARIES = {"jax", "jaxlib", "numpy", "scipy", "numpyro", "equinox", "optax", "ksivi"}
_LIBRARIES |= sys.stdlib_module_names - {"__main__", "random", "time", "datetime", "os"}
"""Nothing that a log density reads from these changes while a process runs."""
_HIDDEN = {"eval", "exec", "globals", "locals", "vars", "open", "input", "__import__"}
_LARGEST_INTEGER = 2**24
"""Integers of 64 bits become integers of 32 bits, in which larger ones might overflow."""


class Unknown(Exception):
    """A value that may change without notice: a function that reads it equals only itself."""


class Part(NamedTuple):
    """A value without its arrays.

    **Attributes:**

    - `key`: equal for equal values, whatever is in the arrays.
    - `build`: makes the value from the arrays.
    """

    key: Hashable
    build: Callable[[Sequence[Any]], Any]


def part_of(value: Any, arrays: list[Any], with_floats: bool, above: tuple[int, ...] = ()) -> Part:
    """The value without its arrays, which are added to the list. Raises `Unknown`.

    **Arguments:**

    - `with_floats`: whether plain floats are arrays too.
    - `above`: the values that this one is a part of.
    """
    if id(value) in above:
        raise Unknown("it refers to itself")
    inner = functools.partial(
        part_of, arrays=arrays, with_floats=with_floats, above=(*above, id(value))
    )
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value, arrays)
    if type(value) is float and with_floats:
        return _array(jnp.asarray(value), arrays)
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return Part((type(value), value), lambda given: value)
    if _is_library(value):
        return Part(("library", value), lambda given: value)
    if isinstance(value, types.FunctionType):
        return _function(value, inner)
    if type(value) in (tuple, list, dict):
        return _container(value, inner, arrays)
    raise Unknown(f"{type(value).__name__} is not known")


def _array(value: Any, arrays: list[Any]) -> Part:
    if not isinstance(value, jax.Array) and not _fits(value):
        raise Unknown("no numbers, or large integers")
    places = [i for i, one in enumerate(arrays) if one is value]
    index = places[0] if places else len(arrays)
    arrays += [] if places else [value]
    return Part(("array", index), lambda given: given[index])


def _fits(value: Any) -> bool:
    """Whether JAX has the same numbers, to its precision."""
    is_whole, is_real = value.dtype.kind in "biu", value.dtype.kind == "f"
    return is_real or (is_whole and np.max(np.abs(value * 1.0), initial=0.0) < _LARGEST_INTEGER)


def _is_library(value: Any) -> bool:
    """Whether it is a module, a function or a type of a library."""
    is_code = isinstance(value, types.FunctionType | types.BuiltinFunctionType | type | np.ufunc)
    if isinstance(value, types.ModuleType):
        name = value.__name__
    elif is_code or hasattr(value, "__wrapped__"):  # what `jax.jit` returns has one
        name = getattr(value, "__module__", None) or type(value).__module__
    else:
        return False
    return name.split(".")[0] in _LIBRARIES


def _container(value: Any, inner: Callable[[Any], Part], arrays: list[Any]) -> Part:
    """A tuple, or a list or a dict that holds arrays; others may be where a function counts."""
    kind, before = type(value), len(arrays)
    keys = tuple(value) if kind is dict else ()
    parts = [inner(one) for one in (value.values() if kind is dict else value)]
    if kind is not tuple and len(arrays) == before:
        raise Unknown(f"a {kind.__name__} without arrays")

    def build(given: Sequence[Any]) -> Any:
        found = [part.build(given) for part in parts]
        return dict(zip(keys, found, strict=True)) if kind is dict else kind(found)

    return Part((kind, keys, tuple(part.key for part in parts)), build)


def _function(function: types.FunctionType, inner: Callable[[Any], Part]) -> Part:
    """A user's function: its code, and the values of its defaults, its closure and its globals."""
    code, name, around = function.__code__, function.__name__, function.__globals__
    read = sorted(_globals_read(code) & around.keys())
    defaults = inner(function.__defaults__ or ())
    named = _by_name(function.__kwdefaults__ or {}, inner)
    cells = [inner(_contents(cell)) for cell in function.__closure__ or ()]
    values = _by_name({one: around[one] for one in read}, inner)

    def build(given: Sequence[Any]) -> Any:
        closure = tuple(types.CellType(cell.build(given)) for cell in cells)
        known = {**around, **{one: part.build(given) for one, part in values.items()}}
        made = types.FunctionType(code, known, name, defaults.build(given), closure)
        made.__kwdefaults__ = {one: part.build(given) for one, part in named.items()}
        return made

    keys = (tuple(cell.key for cell in cells), _keys(named), _keys(values))
    return Part((code, defaults.key, *keys), build)


def _by_name(values: Mapping[str, Any], inner: Callable[[Any], Part]) -> dict[str, Part]:
    return {name: inner(value) for name, value in values.items()}


def _keys(parts: Mapping[str, Part]) -> tuple:
    return tuple((name, part.key) for name, part in parts.items())


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError as error:
        raise Unknown("not yet assigned") from error


def _globals_read(code: types.CodeType) -> set[str]:
    """The names of globals in the code and in functions inside it. Raises `Unknown` if it writes."""
    read = set()
    for one in _instructions(code):
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR"):
            raise Unknown("it writes")
        if one.opname == "STORE_DEREF" and one.argval in code.co_freevars:
            raise Unknown("it writes")
        if one.opname == "IMPORT_NAME" and one.argval.split(".")[0] not in _LIBRARIES:
            raise Unknown("it imports")
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            read.add(one.argval)
    if read & _HIDDEN:
        raise Unknown("it reads what cannot be seen")
    return read


def _instructions(code: types.CodeType) -> Iterable[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)
