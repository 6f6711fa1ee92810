"""Compares optimisers by what they compute: a second `optax.adam(1e-3)` compiles nothing again."""

import functools
import types
from typing import Any, Generic, TypeVar

import jax
import numpy as np
import optax

from .fingerprints import closure_of

Function = TypeVar("Function")

_LIBRARIES = ("optax", "jax")
"""Functions of these libraries depend only on their code and closures. A user's function may read
globals, so it equals only itself."""


class Structural(Generic[Function]):
    """Wraps an optimiser. Two are equal if Optax made them from equal code and equal closures.

    Optax builds its transformations from closures, which Python compares by identity.
    """

    def __init__(self, value: Function):
        self.value = value
        self._fingerprint = _fingerprint(value, ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structural) and self._fingerprint == other._fingerprint

    def __hash__(self) -> int:
        return hash(self._fingerprint)

    def __repr__(self) -> str:
        return f"Structural({self._fingerprint!r})"


Optimizer = Structural[optax.GradientTransformation]


def as_optimizer(
    value: optax.GradientTransformation | None, name: str, default: optax.GradientTransformation
) -> Optimizer:
    """The given Optax transformation, or the default for None."""
    value = default if value is None else value
    if not isinstance(value, optax.GradientTransformation):
        raise ValueError(
            f"{name} must be an Optax transformation, such as optax.adam(1e-2), got {value!r}"
        )
    return Structural(value)


def _fingerprint(value: Any, above: tuple[int, ...]) -> Any:
    """A hashable description of a value. An object of unknown type describes itself."""
    if id(value) in above:
        return ("cycle", above.index(id(value)))
    above = (*above, id(value))
    if isinstance(value, types.FunctionType) and value.__module__.split(".")[0] in _LIBRARIES:
        parts = (value.__defaults__, value.__kwdefaults__, closure_of(value))
        return (value.__code__, _fingerprint(parts, above))
    if isinstance(value, types.MethodType):
        return (value.__func__, _fingerprint(value.__self__, above))
    if isinstance(value, functools.partial):
        return ("partial", _fingerprint((value.func, value.args, value.keywords), above))
    if isinstance(value, tuple | list):
        return (type(value), *(_fingerprint(item, above) for item in value))
    if isinstance(value, dict):
        return (dict, *((key, _fingerprint(item, above)) for key, item in value.items()))
    if isinstance(value, jax.Array | np.ndarray):
        array = np.asarray(value)
        return (array.dtype.str, array.shape, array.tobytes())
    return _Itself(value)


class _Itself:
    """Equal to an equal value of the same type. An unhashable value equals only itself."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Itself) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or (
            type(self.value).__hash__ is not None and bool(self.value == other.value)
        )

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return id(self.value)

    def __repr__(self) -> str:
        return repr(self.value)
