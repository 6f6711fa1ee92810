"""Files that are whole or not there, and arrays in files that are no larger than they say."""

import csv
import math
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

UNREADABLE = (
    *(OSError, ValueError, TypeError, EOFError, KeyError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, csv.Error),
)
"""What readers of JSON, CSV and npz raise for files that are none."""
_MOST = 2**33
"""Bytes of arrays that are read from one compressed file."""


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Written beside, flushed to the disk, then renamed: after a crash there is the old file or the new one."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def save(path: str | os.PathLike, content: bytes) -> None:
    """Writes a file that the user named, or raises `ValueError` with the reason."""
    if not isinstance(path, str | os.PathLike) or not Path(path).parent.is_dir() or Path(path).is_dir():
        raise ValueError(f"path must name a file in a folder that exists, got {path!r}")
    try:
        write_atomically(path, content)
    except (OSError, ValueError) as error:
        raise ValueError(f"path must name a file that can be written, got {path!r}: {error}") from error


def _sync_folder(folder: Path) -> None:
    """The folder's entry too, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of an npz file, without pickles. Refuses (`ValueError`) one that claims more than it holds.

    NumPy makes room for the shape that a header states before it reads; so sizes are compared first.
    """
    with zipfile.ZipFile(path) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
        if total > _MOST:
            raise ValueError(f"it would take {total:,} bytes, and at most {_MOST:,} are read")
        for entry in archive.infolist():
            _require_honest(archive, entry)
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def _require_honest(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise ValueError(f"{entry.filename} holds objects, which are code")
        if math.prod(shape) * dtype.itemsize > entry.file_size:
            raise ValueError(f"{entry.filename} claims shape {shape} and holds {entry.file_size:,} bytes")
