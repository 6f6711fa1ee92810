"""A progress bar, updated after each chunk."""

import sys
import time
from typing import Any

from .._core.checks import as_flag
from ._callbacks import Chunk

_BETWEEN_LINES = 5.0
"""Seconds between two lines within a stage."""


class ProgressBar:
    """A callback that shows steps, loss, speed and remaining time on stderr, with rich.

    A bar `beside` another one shares its display. Two displays would overwrite each other.
    """

    def __init__(self, description: str = "training", beside: "ProgressBar | None" = None):
        self._description = description
        self._display: Any = _display() if beside is None else beside._display
        self._task: Any = None

    def stage(self, description: str) -> None:
        """Shows the name of the current stage. A stage need not have steps."""
        self._description = description
        self._start(None)
        self._display.update(self._task, description=description)

    def evaluated(self, count: int) -> None:
        """Shows how many evaluations of the target were made so far, in all stages."""
        self._start(None)
        text = f"{self._description}, {count:,} evaluations"
        self._display.update(self._task, description=text)

    def remark(self, text: str) -> None:
        """Shows a line that stays."""
        self._display.console.print(text)

    def counted(self, done: int, total: int, what: str, seconds_left: float) -> None:
        """Shows how many of so many things are done. The time left is the display's own estimate."""
        self._start(total)
        self._display.update(self._task, completed=done, total=total, note=what)

    def __call__(self, chunk: Chunk) -> None:
        self._start(chunk.num_steps)
        note = f"loss {f'{chunk.loss:.4g}':>10}  {chunk.steps_per_second:>9,.0f} steps/s"
        self._display.update(self._task, completed=chunk.step, total=chunk.num_steps, note=note)

    def _start(self, total: int | None) -> None:
        if self._task is None:
            self._display.start()
            self._task = self._display.add_task(self._description, total=total, note="")

    def close(self) -> None:
        self._display.stop()


def _display() -> Any:
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
    except ImportError as error:
        raise ImportError("progress needs rich: pip install 'ksivi[cli]'") from error
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


class StageLines:
    """What `ProgressBar` shows, as plain lines, for output that is no terminal."""

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self._count = self._last_count = 0

    def stage(self, description: str) -> None:
        self._say(description)

    def evaluated(self, count: int) -> None:
        self._count = count
        if self._is_due:
            rate = (count - self._last_count) / (time.perf_counter() - self._last)
            self._say(f"{count:,} evaluations of the log density so far, {rate:,.0f} per second")

    def remark(self, text: str) -> None:
        self._say(text)

    def __call__(self, chunk: Chunk) -> None:
        if self._is_due:
            left = (chunk.num_steps - chunk.step) / max(chunk.steps_per_second, 1e-9)
            done = f"{chunk.step:,} of at most {chunk.num_steps:,} steps"
            self._say(f"{done}, at most {_duration(left)} left")

    def counted(self, done: int, total: int, what: str, seconds_left: float) -> None:
        if self._is_due or done == total:
            left = f", about {_duration(seconds_left)} left" if done < total else ""
            self._say(f"{done:,} of {total:,} {what}{left}")

    @property
    def _is_due(self) -> bool:
        return time.perf_counter() - self._last > _BETWEEN_LINES

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        self._last, self._last_count = time.perf_counter(), self._count
        print(f"[{self._last - self._began:5.1f} s] {text}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    """A time to two digits or so: 45 s, 12 min or 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"


Stages = ProgressBar | StageLines


def stages(progress: bool | None, description: str = "fit") -> Stages | None:
    """What shows the stages of a fit: a bar on a terminal with rich, else lines; None for nothing."""
    if progress is not None and not as_flag(progress, "progress"):
        return None
    return ProgressBar(description) if show_progress(None) else StageLines()


def show_progress(progress: bool | None) -> bool:
    """Whether to show a progress bar. None: if stderr is a terminal and rich is installed."""
    if progress is not None:
        return as_flag(progress, "progress")
    if not sys.stderr.isatty():
        return False
    from importlib.util import find_spec

    return find_spec("rich") is not None
