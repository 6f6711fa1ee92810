"""The folder for files that are kept between processes."""

import contextlib
import os
import stat
import time
from pathlib import Path


def cache_folder() -> Path:
    """`$KSIVI_CACHE`, or `~/.cache/ksivi`."""
    return Path(os.environ.get("KSIVI_CACHE") or Path.home() / ".cache" / "ksivi")


def private_folder(path: Path) -> Path:
    """A folder that only this user can write to, made if it is missing.

    Raises `OSError` for a link, for a folder of another user, and for one that others can write to.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{path} is not a folder")
    if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise PermissionError(f"{path} belongs to another user, or others can write to it")
    return path


def prune(folder: Path, most_bytes: int, most_days: float) -> None:
    """Removes what was not used for so many days, and the oldest files while there are too many bytes.

    The files are one level down. Folders that become empty go too. Another process may do the same
    at the same time.
    """
    files = sorted(_files(folder), reverse=True)
    oldest, total = time.time() - 86_400 * most_days, 0
    for used, size, path in files:
        total += size
        if used < oldest or total > most_bytes:
            with contextlib.suppress(OSError):
                path.unlink()
    for one in {path.parent for _, _, path in files}:
        with contextlib.suppress(OSError):
            one.rmdir()  # refuses a folder with files in it


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """When each file was last used, its size, and its path."""
    found = []
    for path in folder.glob("*/*"):
        with contextlib.suppress(OSError):
            about = path.lstat()
            found.append((about.st_mtime, about.st_size, path))
    return found
