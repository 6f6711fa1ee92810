"""The interface of executors, and the executor that runs tasks in this process."""

import abc
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

Item = TypeVar("Item")
Part = TypeVar("Part")
Report = Callable[[Any], Any]
Task = Callable[[Item, Report], Iterator[Part]]
"""Yields the parts of an item's result, and reports its progress."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """The last part of a task that could not finish because the processes that ran it died."""

    reason: str
    seconds: float


class Executor(abc.ABC):
    """Runs a task for every item.

    Use it in a `with` statement, which starts and stops its processes.
    """

    @abc.abstractmethod
    def __enter__(self) -> "Executor": ...

    @abc.abstractmethod
    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abc.abstractmethod
    def run(
        self, task: Task[Item, Part], items: Iterable[Item], on_report: Callable[[Item, Any], Any]
    ) -> Generator[tuple[Item, Part | Lost], None, None]:
        """Yields each item with each part of its result. Takes the next item when a worker is free.

        An error in a task is raised.

        **Arguments:**

        - `task`: yields parts. Parts from this process arrive one by one; parts from another
            process arrive together, at the end of the task.
        - `on_report`: called with an item and with what its task reports. Its answer reaches only
            tasks in this process.
        """


class Local(Executor):
    """One task after another, in this process."""

    def __enter__(self) -> "Local":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def run(
        self, task: Task[Item, Part], items: Iterable[Item], on_report: Callable[[Item, Any], Any]
    ) -> Generator[tuple[Item, Part | Lost], None, None]:
        for item in items:
            for part in task(item, lambda message, item=item: on_report(item, message)):  # type: ignore[misc]
                yield item, part
