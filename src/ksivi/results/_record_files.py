"""The files of a record. At every moment the old or the new record can be read.

The posterior and the history of a new record are written under hidden names that carry the record's
SHA-256. Then `fit.json`, which states this SHA-256, is replaced in one step: the record is now the
new one. At last the hidden files get their usual names. So a reader takes the hidden file that
`fit.json` calls for, and the file with the usual name if there is none.
"""

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

from .._core.files import UNREADABLE, locked, write_atomically

POSTERIOR, FACTS, HISTORY = "posterior.safetensors", "fit.json", "history.npz"


def path_of(folder: Path, name: str, sha256: Any) -> Path:
    """The posterior or the history of the record whose facts state this SHA-256."""
    hidden = folder / _hidden(name, sha256)
    return hidden if hidden.is_file() else folder / name


def stamps(folder: Path) -> list[tuple[int, int] | None]:
    """It changes when another process replaces a file of the record."""
    found: list[tuple[int, int] | None] = []
    for name in (POSTERIOR, FACTS, HISTORY):
        try:
            file = (folder / name).stat()
            found.append((file.st_ino, file.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def replace_record(folder: Path, facts: bytes, others: dict[str, bytes], sha256: str) -> None:
    """Writes all files of a record, one writer at a time.

    If it raises an `OSError`, the folder holds the record that it held before.
    """
    with locked(folder):
        _tidy(folder)
        try:
            for name, content in others.items():
                write_atomically(folder / _hidden(name, sha256), content)
            write_atomically(folder / FACTS, facts)
        finally:
            _tidy(folder)


def _hidden(name: str, sha256: Any) -> str:
    known = isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256)
    return f".{name}.{sha256 if known else 'none'}"


def _tidy(folder: Path) -> None:
    """Gives the files of the current record their usual names, and removes those of no record.

    A file that cannot be renamed is read under its hidden name.
    """
    stated = _stated(folder / FACTS)
    for name in (POSTERIOR, HISTORY):
        with contextlib.suppress(OSError):
            os.replace(folder / _hidden(name, stated), folder / name)
    for name in (POSTERIOR, HISTORY, FACTS):
        for left in folder.glob(f".{name}.*"):
            if left.name != _hidden(name, stated):
                with contextlib.suppress(OSError):
                    left.unlink()


def _stated(facts: Path) -> Any:
    """The SHA-256 that the facts state; None if there are no facts, or damaged ones."""
    content = facts.read_bytes() if facts.is_file() else b""
    try:
        return json.loads(content)["sha256"]
    except UNREADABLE:
        return None
