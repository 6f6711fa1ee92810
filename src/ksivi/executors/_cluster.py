"""Tasks on a Dask cluster: new processes on this machine, or a cluster that is already running."""

import contextlib
import itertools
import logging
import multiprocessing.resource_tracker
import pickle
import signal
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from .._core.checks import as_count
from . import _worker as worker
from ._executor import Executor, Item, Lost, Part, Task

_LOOK_S = 5.0
"""Seconds between checks for workers that have joined."""
_JOIN_S = 10.0


class Dask(Executor):
    """Runs tasks on a Dask cluster, one task per worker. If a worker dies, its task runs again on
    another worker.

    When a worker dies, Dask blames all tasks in its queue. So no task is queued: an item is sent
    when a worker is free. A task that kills more workers than Dask's setting `allowed-failures` (3)
    ends as `Lost`.

    **Arguments:**

    - `workers`: the number of processes to start on this machine, with one thread each.
    - `scheduler`: the address of a running scheduler, to use its workers instead.
    - `note`: called with a sentence when a worker dies.
    """

    def __init__(
        self,
        workers: int = 2,
        scheduler: str | None = None,
        note: Callable[[str], Any] = lambda sentence: None,
    ):
        require_distributed()
        self.workers, self.scheduler, self.note = as_count(workers, "workers"), scheduler, note
        self._client: Any = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "Dask":
        try:
            address = self._start() if self.scheduler is None else self.scheduler
            self._client = self._open.enter_context(_join(address))
        except RuntimeError as error:
            self._open.close()
            raise OSError(f"Dask could not start {self.workers} workers: {error}") from error
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def run(
        self, task: Task[Item, Part], items: Iterable[Item], on_report: Callable[[Item, Any], Any]
    ) -> Generator[tuple[Item, Part | Lost], None, None]:
        from distributed import wait

        tasks = _RunningTasks(self._client, task, on_report, self.note)
        waiting = iter(items)
        running: set[Any] = set()
        try:
            while True:
                # At least one task, because an adaptive cluster starts its workers only when there
                # is work.
                free = max(1, len(self._client.nthreads())) - len(running)
                running |= {tasks.start(item) for item in itertools.islice(waiting, max(0, free))}
                if not running:
                    return
                for future in _ended(wait, running):
                    running.remove(future)
                    yield from tasks.result(future)
        finally:
            tasks.close(running)

    def _start(self) -> Any:
        from distributed import LocalCluster

        with _sigint_blocked():
            cluster = LocalCluster(
                n_workers=self.workers,
                threads_per_worker=1,
                # A task may need more than its share, so only the memory of the machine limits it.
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,  # the note says what matters
                env=worker.environment(),
            )
            return self._open.enter_context(cluster)


class _RunningTasks:
    """The submitted tasks: the item and the start time of each, and who is told about its
    progress."""

    def __init__(
        self,
        client: Any,
        task: Callable,
        on_report: Callable[[Any, Any], Any],
        note: Callable[[str], Any],
    ):
        self.client, self.task, self.on_report, self.note = client, task, on_report, note
        self.topic, self.count = f"ksivi-{uuid.uuid4().hex}", itertools.count()
        self.items: dict[str, tuple[Any, float]] = {}
        client.subscribe_topic(self.topic, self._task_event)
        client.subscribe_topic("all", self._worker_event)

    def start(self, item: Any) -> Any:
        import cloudpickle

        key, packed = f"{self.topic}-{next(self.count)}", cloudpickle.dumps((self.task, item))
        self.items[key] = item, time.perf_counter()
        return self.client.submit(worker.perform, packed, key, self.topic, key=key, pure=False)

    def result(self, future: Any) -> Iterator[tuple[Any, Any]]:
        """The item and the parts of a task that has ended."""
        from distributed import KilledWorker

        item, began = self.items.pop(future.key)
        try:
            parts = pickle.loads(future.result())
        except KilledWorker as error:
            deaths, last = error.allowed_failures + 1, error.last_worker.address
            reason = f"{deaths} workers died while they ran it, the last {last}"
            parts = [Lost(reason, time.perf_counter() - began)]
        yield from ((item, part) for part in parts)

    def close(self, running: Iterable[Any]) -> None:
        self.client.cancel(list(running))
        for topic in (self.topic, "all"):
            self.client.unsubscribe_topic(topic)

    def _task_event(self, event: tuple[float, Any]) -> None:
        key, message = event[1]
        if key in self.items:  # the task has not ended
            self.on_report(self.items[key][0], pickle.loads(message))

    def _worker_event(self, event: tuple[float, Any]) -> None:
        about = event[1]
        if (
            isinstance(about, dict)
            and about.get("action") == "remove-worker"
            and not about["expected"]
        ):
            for item, _ in (
                self.items[key] for key in about["processing-tasks"] if key in self.items
            ):
                self.note(f"worker {about['worker']} died while it ran {item}")


def require_distributed() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the dask executor needs distributed: pip install 'ksivi[dask]'"
        ) from error


def send_modules_of(folder: Path) -> None:
    """Sends modules imported from this folder together with the tasks, because workers may not have
    its files."""
    import cloudpickle

    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).resolve().parent == folder.resolve():
            cloudpickle.register_pickle_by_value(module)


def _join(address: Any) -> Any:
    """A client of a cluster, or of the scheduler at an address."""
    from distributed import Client

    try:
        client = Client(address, timeout=_JOIN_S)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"scheduler must be the address of a Dask scheduler, got {address}: {error}"
        ) from error
    many = {name: threads for name, threads in client.nthreads().items() if threads > 1}
    if many:
        client.close()
        raise ValueError(
            f"workers must have one thread each (dask worker --nthreads 1), got {many}"
        )
    return client


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Blocks SIGINT, also in threads and processes that start meanwhile. A Ctrl-C reaches all
    processes of a terminal.

    The client ends its workers itself. A Ctrl-C in the meantime is delivered at the end.
    """
    if sys.platform == "win32":
        yield
        return
    multiprocessing.resource_tracker.ensure_running()  # because it unblocks SIGINT when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(wait: Callable, running: set) -> set:
    """The futures that have ended; an empty set after a few seconds without any."""
    from concurrent.futures import CancelledError

    try:
        return wait(running, timeout=_LOOK_S, return_when="FIRST_COMPLETED").done
    except TimeoutError:
        return set()
    except CancelledError as error:
        raise OSError(
            "the Dask scheduler is gone: finished results are kept; run again to continue"
        ) from error
