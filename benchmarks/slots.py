"""Jobs that run beside one another, each on two cores of its own."""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Job = TypeVar("Job")
_CORES = 2


def slots() -> list[set[int]]:
    """Pairs of the cores that this process may use. A machine of one core has one slot."""
    cores = sorted(_usable())
    pairs = max(len(cores) // _CORES, 1)
    return [set(cores[_CORES * i : _CORES * (i + 1)]) for i in range(pairs)]


def _usable() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def pin(cores: set[int]) -> None:
    """Limits this thread, and the processes that it starts, to these cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


class Crew(Generic[Job]):
    """A thread a slot. Each takes the first job that is ready, until none is left.

    **Arguments:**

    - `run`: does a job. What it starts runs on the cores of the slot.
    - `is_ready`: whether a job can begin. It is asked again when another job is done.
    """

    def __init__(
        self, jobs: Iterable[Job], run: Callable[[Job], None], is_ready: Callable[[Job], bool]
    ):
        self.waiting, self.run, self.is_ready = list(jobs), run, is_ready
        self.busy, self.changed = 0, threading.Condition()

    def work(self, places: list[set[int]]) -> None:
        threads = [threading.Thread(target=self._on, args=(one,), daemon=True) for one in places]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self.dismiss()  # after Ctrl-C nothing new begins

    def dismiss(self) -> None:
        """No further job begins."""
        with self.changed:
            self.waiting.clear()
            self.changed.notify_all()

    def _on(self, cores: set[int]) -> None:
        pin(cores)
        while (job := self._next()) is not None:
            try:
                self.run(job)
            finally:
                with self.changed:
                    self.busy -= 1
                    self.changed.notify_all()

    def _next(self) -> Job | None:
        with self.changed:
            while self.waiting:
                job = next((one for one in self.waiting if self.is_ready(one)), None)
                if job is not None:
                    self.waiting.remove(job)
                    self.busy += 1
                    return job
                if not self.busy:  # nothing can make a job ready any more
                    return None
                self.changed.wait()
            return None
