"""How much memory this process takes, by looking every few milliseconds."""

import threading
from pathlib import Path
from typing import Literal

Kind = Literal["VmRSS", "RssAnon"]
"""Lines of /proc/self/status: all that is resident, or what the process itself holds, without mapped files."""


class MemoryPeak:
    """The most memory of a kind within the context, and how much it grew there, in bytes."""

    def __init__(self, kind: Kind):
        self.kind: Kind = kind

    def __enter__(self) -> "MemoryPeak":
        self._done, self._start = threading.Event(), resident(self.kind)
        self.peak = self._start
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._watcher.join()

    @property
    def growth(self) -> int:
        return self.peak - self._start

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.peak = max(self.peak, resident(self.kind))


def resident(kind: Kind) -> int:
    """Bytes at this moment."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))
