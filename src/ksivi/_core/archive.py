"""Saves modules to safetensors files: a JSON structure, plain tensors and a SHA-256. No pickle."""

import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .registry import CLASSES
from .registry import register as register
from .sealed import Tensors as Tensors
from .sealed import seal as seal
from .sealed import unseal as unseal

_MAX_DEPTH = 50
_FUNCTIONS: dict[str, Callable] = {
    name: getattr(jax.nn, name)
    for name in (
        "relu",
        "relu6",
        "leaky_relu",
        "elu",
        "selu",
        "celu",
        "gelu",
        "silu",
        "softplus",
        "tanh",
        "sigmoid",
    )
}


def pack(module: eqx.Module) -> bytes:
    """The module as the bytes of one file.

    Raises `ValueError` if a part of the module cannot be saved. The message names the part.
    """
    tensors: Tensors = {}
    structure = json.dumps(_encode(module, type(module).__name__.lower(), tensors), sort_keys=True)
    return seal({"structure": structure}, tensors)


def unpack(content: bytes) -> Any:
    """The module that `pack` packed. It makes the same checks as `read`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packed.safetensors"
        path.write_bytes(content)
        return read(path)


def read(path: str | os.PathLike) -> Any:
    """The module in a file that `pack` made. Raises `ValueError` as `unseal` does."""
    header, tensors = unseal(path)
    try:
        return _decode(json.loads(header["structure"]), tensors, 0)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a ksivi file: {error!r}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _encode(value: Any, path: str, tensors: Tensors) -> Any:
    if isinstance(value, jax.Array | np.ndarray):
        tensors[path] = np.asarray(value)
        return {"tensor": path}
    if isinstance(value, tuple | list):
        return {"tuple": [_encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]}
    if type(value) in CLASSES.values():
        kept = [
            field.name for field in dataclasses.fields(value) if field.metadata.get("saved", True)
        ]
        fields = {name: getattr(value, name) for name in kept}
        encoded = {name: _encode(item, f"{path}.{name}", tensors) for name, item in fields.items()}
        return {"class": type(value).__name__, "fields": encoded}
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return {"value": value}
    for name, function in _FUNCTIONS.items():
        if value is function:
            return {"function": name}
    raise ValueError(f"cannot save {path}: {value!r} is user code, and files hold no code")


def _decode(node: Any, tensors: Tensors, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the structure is nested more than {_MAX_DEPTH} levels deep")
    (kind,) = set(node) - {"fields"}
    content = node[kind]
    if kind == "tensor":
        return _as_jax(tensors[content], content)
    if kind == "tuple":
        return tuple(_decode(item, tensors, depth + 1) for item in content)
    if kind == "value":
        return content
    if kind == "function":
        return _FUNCTIONS[content]
    fields = {name: _decode(item, tensors, depth + 1) for name, item in node["fields"].items()}
    return _build(CLASSES[content], fields)


def _as_jax(array: np.ndarray, name: str) -> jax.Array:
    converted = jax.device_put(array)  # on a CPU without a copy, unlike `jnp.asarray`
    if converted.dtype != array.dtype:
        raise ValueError(f"{name} is {array.dtype}: set jax_enable_x64 to load it without loss")
    return converted


def _build(cls: type, fields: dict[str, Any]) -> Any:
    """An instance with these fields. It skips `__init__`, which would compute them again."""
    # A field that an older version did not have takes its default.
    defaults = {
        one.name: one.default
        for one in dataclasses.fields(cls)
        if one.default is not dataclasses.MISSING
    }
    expected = {one.name for one in dataclasses.fields(cls) if one.metadata.get("saved", True)}
    if not expected - set(defaults) <= set(fields) <= expected:
        raise ValueError(
            f"{cls.__name__} has fields {sorted(expected)}, but the file has {sorted(fields)}"
        )
    module: Any = object.__new__(cls)
    for name, value in (defaults | fields).items():
        object.__setattr__(module, name, value)
    return module
