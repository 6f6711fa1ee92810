"""Saves modules to safetensors files: a JSON structure, plain tensors and a SHA-256. No pickle."""

import dataclasses
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

FORMAT = 1
_MAX_DEPTH = 50
_CLASSES: dict[str, type] = {}
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

Class = TypeVar("Class", bound=type)
Tensors = dict[str, np.ndarray]


def register(cls: Class) -> Class:
    """Allows a module class in archives. A class that is not registered is user code: not saved."""
    _CLASSES[cls.__name__] = cls
    return cls


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


def seal(facts: dict[str, str], tensors: Tensors) -> bytes:
    """The bytes of a file with facts and tensors, its format number and a SHA-256 over all."""
    # safetensors writes memory as it lies, in whatever order; files are in C's.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    header = {"format": str(FORMAT), **facts}
    header["sha256"] = _digest(header, tensors)
    return safetensors.numpy.save(tensors, metadata={"ksivi": json.dumps(header, sort_keys=True)})


def unseal(path: str | os.PathLike) -> tuple[dict[str, str], Tensors]:
    """The facts and tensors of a sealed file.

    Raises `ValueError` with the reason if the file is damaged, newer, or not a ksivi file.
    """
    header, tensors = _open(path)
    version = header.get("format")
    if version != str(FORMAT):
        raise ValueError(
            f"{path} has format {version}; this version of ksivi reads format {FORMAT}"
        )
    stated = header.pop("sha256", None)
    if stated != _digest(header, tensors):
        raise ValueError(f"{path} is damaged: its contents do not match its SHA-256")
    return header, tensors


def read(path: str | os.PathLike) -> Any:
    """The module in a file that `pack` made. Raises `ValueError` as `unseal` does."""
    header, tensors = unseal(path)
    try:
        return _decode(json.loads(header["structure"]), tensors, 0)
    except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a ksivi file: {error!r}") from error


def _open(path: str | os.PathLike) -> tuple[dict[str, str], Tensors]:
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        raise ValueError(f"path must name a saved posterior, but there is no file {path}")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata["ksivi"])
    except (
        safetensors.SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        OSError,
        RecursionError,
    ) as error:
        raise ValueError(f"{path} is damaged or not a ksivi file: {error!r}") from error
    if not isinstance(header, dict) or not all(isinstance(value, str) for value in header.values()):
        raise ValueError(
            f"{path} is damaged or not a ksivi file: its header is not a table of text"
        )
    return header, tensors


def _digest(header: dict[str, str], tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _encode(value: Any, path: str, tensors: Tensors) -> Any:
    if isinstance(value, jax.Array | np.ndarray):
        tensors[path] = np.asarray(value)
        return {"tensor": path}
    if isinstance(value, tuple | list):
        return {"tuple": [_encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]}
    if type(value) in _CLASSES.values():
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
    return _build(_CLASSES[content], fields)


def _as_jax(array: np.ndarray, name: str) -> jax.Array:
    converted = jnp.asarray(array)
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
    expected = {field.name for field in dataclasses.fields(cls)}
    if not expected - set(defaults) <= set(fields) <= expected:
        raise ValueError(
            f"{cls.__name__} has fields {sorted(expected)}, but the file has {sorted(fields)}"
        )
    module: Any = object.__new__(cls)
    for name, value in (defaults | fields).items():
        object.__setattr__(module, name, value)
    return module
