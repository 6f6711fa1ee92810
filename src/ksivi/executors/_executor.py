"""What an executor does, and the one that does it here, one task after another."""

import abc
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

Item = TypeVar("Item")
Part = TypeVar("Part")
Tell = Callable[[Any], Any]
Task = Callable[[Item, Tell], Iterator[Part]]
"""Makes the parts of an item's result, and tells meanwhile how far it is."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """The last part of a task that could not be finished, since the processes that ran it died."""

    reason: str
    seconds: float


class Executor(abc.ABC):
    """Runs a task for every item. Use it as a context, which holds what it needs."""

    @abc.abstractmethod
    def __enter__(self) -> "Executor": ...

    @abc.abstractmethod
    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    @abc.abstractmethod
    def run(
        self, task: Task[Item, Part], items: Iterable[Item], heard: Callable[[Item, Any], Any]
    ) -> Generator[tuple[Item, Part | Lost], None, None]:
        """The parts of every item's result, each once, with their item; items are taken when there is room for them.

        **Arguments:**

        - `task`: yields parts. Here they come as they are made; from elsewhere together, when the task has ended.
        - `heard`: called with an item and what its task tells. Only here does the task get the answer.

        An error in a task is raised.
        """


class Local(Executor):
    """One task after another, in this process."""

    def __enter__(self) -> "Local":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def run(
        self, task: Task[Item, Part], items: Iterable[Item], heard: Callable[[Item, Any], Any]
    ) -> Generator[tuple[Item, Part | Lost], None, None]:
        for item in items:
            for part in task(item, lambda message, item=item: heard(item, message)):  # type: ignore[misc]
                yield item, part
