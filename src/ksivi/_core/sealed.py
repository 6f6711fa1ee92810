"""Sealed files: safetensors with a header of text, and a SHA-256 over header and tensors."""

import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from .files import open_regular
from .fingerprints import contents

FORMAT = 1
_CHUNK, _ALIGNED = 2**24, 64
"""Bytes that are read at once, and the alignment at which JAX takes an array without a copy."""

Tensors = dict[str, np.ndarray]


class _Entry(NamedTuple):
    """A tensor in a file, and the place of its bytes."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def seal(facts: dict[str, str], tensors: Tensors) -> bytes:
    """The bytes of a file with facts and tensors, its format number and a SHA-256 over all."""
    # safetensors writes memory as it lies, in whatever order; files are in C's.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    header = {"format": str(FORMAT), **facts}
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, array in sorted(tensors.items()):
        digest.update(_title(name, array.dtype, array.shape))
        digest.update(contents(array))
    header["sha256"] = digest.hexdigest()
    return safetensors.numpy.save(tensors, metadata={"ksivi": json.dumps(header, sort_keys=True)})


def unseal(path: str | os.PathLike) -> tuple[dict[str, str], Tensors]:
    """The facts and tensors of a sealed file.

    Raises `ValueError` with the reason if the file is damaged, newer, or not a ksivi file. No room
    is made for tensors before their SHA-256 is known to be right, and each is read once.
    """
    header, entries = _open(path)
    version = header.get("format")
    if version != str(FORMAT):
        raise ValueError(
            f"{path} has format {version}; this version of ksivi reads format {FORMAT}"
        )
    stated = header.pop("sha256", None)
    _require_room(path, sum(entry.size for entry in entries))
    try:
        with open_regular(path) as file:
            if stated != _digest(file, header, entries):
                raise ValueError(f"{path} is damaged: its contents do not match its SHA-256")
            return header, {entry.name: _read(file, entry) for entry in entries}
    except (OSError, EOFError, MemoryError) as error:
        raise ValueError(f"{path} cannot be read: {error!r}") from error


def _open(path: str | os.PathLike) -> tuple[dict[str, str], list[_Entry]]:
    """The header and the places of the tensors, which safetensors checks against the file's size."""
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        raise ValueError(f"path must name a saved posterior, but there is no file {path}")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})["ksivi"])
            entries = _entries(path, file)
    except (
        safetensors.SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        OSError,
        RecursionError,
        MemoryError,
    ) as error:
        raise ValueError(f"{path} is damaged or not a ksivi file: {error!r}") from error
    if not isinstance(header, dict) or not all(isinstance(value, str) for value in header.values()):
        raise ValueError(
            f"{path} is damaged or not a ksivi file: its header is not a table of text"
        )
    return header, entries


def _entries(path: str | os.PathLike, file: Any) -> list[_Entry]:
    """The tensors by name. Their bytes follow the header without gaps."""
    with open_regular(path) as opened:
        start = 8 + struct.unpack("<Q", opened.read(8))[0]
    found = []
    for name in file.offset_keys():
        part = file.get_slice(name)
        shape = tuple(part.get_shape())
        # Reading no rows gives the dtype.
        dtype = (part[:0] if shape and 0 not in shape else file.get_tensor(name)).dtype
        found.append(_Entry(name, dtype, shape, start))
        start += found[-1].size
    return sorted(found)


def _require_room(path: str | os.PathLike, size: int) -> None:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return
    if size > memory:
        raise ValueError(
            f"{path} holds {size:,} bytes of tensors, more than the {memory:,} bytes of memory"
        )


def _digest(file: BinaryIO, header: dict[str, str], entries: list[_Entry]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for entry in entries:
        digest.update(_title(entry.name, entry.dtype, entry.shape))
        file.seek(entry.start)
        left = entry.size
        while left > 0 and (part := file.read(min(left, _CHUNK))):
            digest.update(part)
            left -= len(part)
    return digest.hexdigest()


def _title(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    return json.dumps([name, str(dtype), shape]).encode()


def _read(file: BinaryIO, entry: _Entry) -> np.ndarray:
    room = np.empty(entry.size + _ALIGNED, np.uint8)
    first = -room.ctypes.data % _ALIGNED
    array = room[first : first + entry.size]
    file.seek(entry.start)
    if file.readinto(array.data) != entry.size:  # type: ignore[attr-defined]
        raise EOFError(f"the file ends within {entry.name}")
    return array.view(entry.dtype).reshape(entry.shape)
