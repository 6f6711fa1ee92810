"""Claims: which cells this process is running, so that several processes can share a folder."""

import contextlib
import os
from pathlib import Path

from .cells import Cell


class Claims:
    """The cells that this process has claimed in a folder.

    A claim is a locked file. The system unlocks it when the process ends, however it ends, so a
    cell of a process that was killed is free again. Where the system has no locks, every claim is
    granted: records are still whole, but two processes may run the same cell.
    """

    def __init__(self, folder: Path):
        self.folder = folder / "claims"
        self.held: dict[tuple[str, str], tuple[int, Path]] = {}

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, *_) -> None:
        for name in list(self.held):
            self._release(name)

    def take(self, cell: Cell) -> bool:
        """Claims a cell; False if another process has it."""
        path = self.folder / f"{cell.experiment}-{cell.name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        if not (_lock(handle) and _is_of(handle, path)):
            os.close(handle)
            return False
        self.held[cell.experiment, cell.name] = handle, path
        return True

    def release(self, cell: Cell) -> None:
        """Gives up a claim, if there is one."""
        self._release((cell.experiment, cell.name))

    def _release(self, name: tuple[str, str]) -> None:
        if name in self.held:
            handle, path = self.held.pop(name)
            with contextlib.suppress(OSError):  # Windows does not remove open files
                path.unlink(missing_ok=True)
            os.close(handle)


def _is_of(handle: int, path: Path) -> bool:
    """Whether the path still has this file. Its last owner removes it when it gives up its claim."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have no locks
        return True
    return True
