"""Saves the record of a fit: in its folder, or elsewhere if that folder cannot be written."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..results import Record


def save_record(record: Record, folder: Path) -> OSError | None:
    """Writes the record into the folder.

    If it cannot be written, the folder keeps what it held, and the record goes into the first other
    folder that has room. The result is then an error that says where.
    """
    try:
        record.write(folder)
    except (OSError, ValueError, MemoryError) as error:
        where = _saved_elsewhere(record, folder)
        reason = getattr(error, "strerror", None) or error
        kept = f"{printable(folder)} could not be written: {reason}. Its files are as before"
        if where is None:
            return OSError(f"{kept}. The results are lost: there was no other folder with room")
        return OSError(f"{kept}. The results are in {where}; next: ksivi report {where}")
    return None


def printable(name: str | os.PathLike | None) -> str | None:
    """A file name as text. Bytes that are no text are escaped."""
    return None if name is None else os.fsencode(name).decode(errors="backslashreplace")


def _saved_elsewhere(record: Record, folder: Path) -> Path | None:
    for place in _other_places(folder):
        made = None
        with contextlib.suppress(OSError, ValueError, MemoryError):
            made = Path(tempfile.mkdtemp(prefix="ksivi-unsaved-", dir=place))
            record.write(made)
            return made
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
    return None


def _other_places(folder: Path) -> Iterator[Path]:
    """Folders that last come first: a cluster removes its temporary folder when a job ends."""
    for find in (folder.absolute().parent.resolve, Path.cwd, Path.home, tempfile.gettempdir):
        with contextlib.suppress(OSError, RuntimeError):
            yield Path(find())
