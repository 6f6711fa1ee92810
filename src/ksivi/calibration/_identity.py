"""What identifies a calibration, so that its record serves no other: a digest of its arguments."""

import functools
import hashlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._core.fingerprints import Digest, add_array, arrays_within, closure_of, program_of
from ..targets import Target

_PLAIN = (int, float, complex, str, bytes, type(None))


def digest(truth: dict[str, Any], target: Target, fit: Callable, settings: Any) -> str:
    """A digest of one simulated pair, the function that fits it, and settings with a plain `repr`.

    The pair covers the prior, the likelihood and all data. Of the function it covers the code, and
    the numbers, texts and arrays that it uses, but not the attributes of objects.
    """
    found = hashlib.sha256(repr(settings).encode())
    for name in sorted(truth):
        found.update(name.encode())
        add_array(found, truth[name])
    _add_target(found, target)
    found.update("\n".join(_words(fit)).encode())
    for array in arrays_within(fit):
        add_array(found, array)
    return found.hexdigest()


def _add_target(found: Digest, target: Target) -> None:
    function = Target.log_density if target.has_log_density else Target.score
    program = program_of(function, target, jnp.zeros(target.dim))
    found.update(program.text.encode())
    for array in (*program.arrays, *program.constants):
        add_array(found, array)
    if target.host_rows is not None:
        target.host_rows.add_to(found)
    for array in target.density.host_values(np.full((1, target.dim), 0.3)):
        # The last bits can differ between processes.
        found.update(" ".join(f"{one:.5g}" for one in array.ravel()).encode())


def _words(value: Any, above: tuple[int, ...] = ()) -> Iterator[str]:
    """What a function consists of, as words that are equal in every process."""
    if isinstance(value, _PLAIN):
        yield repr(value)
    elif id(value) not in above:
        yield type(value).__name__
        for part in _parts(value):
            yield from _words(part, (*above, id(value)))


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.MethodType):
        return (value.__func__,)
    if isinstance(value, types.FunctionType):
        named = [value.__globals__.get(name) for name in value.__code__.co_names]
        plain = tuple(one for one in named if isinstance(one, _PLAIN))
        return value.__code__, value.__defaults__, value.__kwdefaults__, closure_of(value), plain
    if isinstance(value, types.CodeType):
        return value.co_code, value.co_names, value.co_consts
    if isinstance(value, frozenset):
        return tuple(sorted(value, key=repr))
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(value) if isinstance(value, tuple | list) else ()
