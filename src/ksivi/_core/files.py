"""Atomic writes, and safe reads of arrays from files."""

import contextlib
import csv
import json
import math
import os
import secrets
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

UNREADABLE = (
    *(OSError, ValueError, TypeError, EOFError, KeyError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, csv.Error),
)
"""Exceptions that readers of JSON, CSV and npz raise for files in another format."""
_MOST = 2**33
"""Maximum number of bytes that are read from one compressed file."""
_MOST_JSON = 2**28
_DEFLATE = 1_100
"""At most this many bytes come from a compressed byte, in the format of zip files."""


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Writes a file so that after a crash either the old or the new content is there.

    It writes a temporary file in the same folder, flushes it to disk and renames it. A link at the
    path is replaced, not followed.
    """
    path = Path(path)
    # The name is new: two writers, in threads or processes, never share it.
    beside = path.with_name(f".{path.name.lstrip('.')}.{secrets.token_hex(8)}.part")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def save(path: str | os.PathLike, content: bytes) -> None:
    """Writes a file at a path from the user. Raises `ValueError` with the reason if it cannot."""
    if (
        not isinstance(path, str | os.PathLike)
        or not Path(path).parent.is_dir()
        or Path(path).is_dir()
    ):
        raise ValueError(f"path must name a file in a folder that exists, got {path!r}")
    try:
        write_atomically(path, content)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"path must name a file that can be written, got {path!r}: {error}"
        ) from error


def require_writable(folder: str | os.PathLike, num_bytes: int = 2**16) -> None:
    """Writes a file into the folder and removes it. Raises `OSError` if there is no room for it."""
    probe = Path(folder) / f".probe.{secrets.token_hex(8)}.part"
    try:
        with probe.open("xb") as file:
            file.write(bytes(num_bytes))
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: str | os.PathLike, patience_s: float = 60.0) -> Iterator[None]:
    """Inside the block, no other thread or process is in a block for the same folder.

    Raises `TimeoutError` if another one does not leave its block. Where the system cannot lock the
    folder, there is no lock.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows, or a folder that can be written but not listed
        yield
        return
    try:
        _lock(handle, folder, time.monotonic() + patience_s)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: str | os.PathLike, until: float) -> None:
    import fcntl  # not on Windows

    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(f"another process is still writing into {folder}") from None
            time.sleep(0.02)
        except OSError:  # some network file systems have no locks
            return None


def _sync_folder(folder: Path) -> None:
    """Flushes the folder's entry to disk, if the system can open folders."""
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


def open_regular(path: str | os.PathLike) -> BinaryIO:
    """Opens a regular file to read it. A pipe or a device could block or never end: `ValueError`."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{path} must be a regular file, not a folder, a pipe or a device")
    return os.fdopen(handle, "rb")


def read_bytes(path: str | os.PathLike, most: int = _MOST) -> bytes:
    """All bytes of a regular file. Raises `ValueError` if there are more than `most`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{path} has {size:,} bytes, more than the maximum of {most:,}")
        return file.read(most)


def read_json(path: str | os.PathLike) -> Any:
    """The value in a JSON file. Raises `ValueError` if the file is damaged or another kind."""
    try:
        return json.loads(read_bytes(path, _MOST_JSON))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deep") from error


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of an npz file, without pickles.

    Raises `ValueError` if a header states more data than the file holds. NumPy would allocate
    memory for the stated shape before it reads.
    """
    with open_regular(path) as file:
        with zipfile.ZipFile(file) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
            if total > _MOST:
                raise ValueError(
                    f"the arrays take {total:,} bytes, more than the maximum of {_MOST:,}"
                )
            for entry in archive.infolist():
                _require_stated_size(archive, entry)
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            return dict(stored)


def _require_stated_size(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise ValueError(f"{entry.filename!r} holds Python objects, which can run code")
        held = min(entry.file_size, _DEFLATE * entry.compress_size)
        if math.prod(shape) * dtype.itemsize > held:
            raise ValueError(
                f"{entry.filename!r} claims shape {shape} but holds only {held:,} bytes"
            )
