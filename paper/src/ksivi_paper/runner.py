"""The runner: every cell that has no record yet, one after another or on a cluster."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from ksivi.executors import Executor, Local, Lost

from .cells import Cell, Runs
from .records import Folder, make_record

_TROUBLE = (ValueError, ImportError, RuntimeError, OSError)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a cell ended: "kept" from before, "trained", "measured", "not trained", or why it could not run."""

    cell: Cell
    state: str
    seconds: float


def run(
    cells: Iterable[Cell],
    folder: Folder,
    *,
    train: bool = True,
    measure: bool = True,
    tell: Callable[[Outcome], None] = lambda outcome: None,
    executor: Executor | None = None,
) -> list[Outcome]:
    """Finishes cells; a finished one is not run again, and neither is finished training.

    **Arguments:**

    - `train`, `measure`: whether to do that half. Training wants an accelerator and measuring does not, so that they
        may be done on two machines; without training, cells that are not trained are passed over.
    - `tell`: called after each cell.
    - `executor`: where cells run; in this process unless given. Files are read and written in this process alone.

    A cell whose data or packages are missing, or whose workers die, does not stop the others.
    """
    outcomes: list[Outcome] = []

    def end(cell: Cell, state: str, seconds: float) -> None:
        outcomes.append(Outcome(cell, state, seconds))
        tell(outcomes[-1])

    jobs = _jobs(cells, folder, train, measure, end)
    with closing((executor or Local()).run(_work, jobs, lambda job, message: None)) as parts:
        for job, part in parts:
            if isinstance(part, Lost):
                end(job.cell, f"could not run: {part.reason}", part.seconds)
            elif isinstance(part, _Ended):
                end(job.cell, part.state, part.seconds)
            else:
                _keep(folder, job.cell, part)
    return outcomes


@dataclasses.dataclass(frozen=True)
class _Job:
    """What is left to do for a cell, and what it has been trained to already."""

    cell: Cell
    runs: Runs | None
    measure: bool

    def __str__(self) -> str:
        return f"{self.cell.experiment}/{self.cell.name}"


@dataclasses.dataclass(frozen=True)
class _Ended:
    state: str
    seconds: float


def _jobs(
    cells: Iterable[Cell], folder: Folder, train: bool, measure: bool, end: Callable[[Cell, str, float], None]
) -> Iterator[_Job]:
    """The cells that have something left to do; the others end here."""
    for cell in cells:
        began = time.perf_counter()
        try:
            kept = folder.record(cell) is not None
            runs = None if kept else folder.runs(cell)
        except _TROUBLE as error:
            end(cell, f"could not run: {error}", time.perf_counter() - began)
            continue
        if kept or (runs is None and not train) or (runs is not None and not measure):
            state = "kept" if kept else "not trained" if runs is None else "trained"
            end(cell, state, time.perf_counter() - began)
        else:
            yield _Job(cell, runs, measure)


def _work(job: _Job, tell: Callable[[Any], Any]) -> Iterator[Runs | dict[str, Any] | _Ended]:
    """What training leaves, where there was none, the record, and how it ended."""
    began, state = time.perf_counter(), "measured" if job.measure else "trained"
    try:
        runs = job.runs
        if runs is None:
            runs = job.cell.train()
            yield runs
        if job.measure:
            yield _measured(job.cell, runs)
    except _TROUBLE as error:
        state = f"could not run: {error}"
    yield _Ended(state, time.perf_counter() - began)


def _measured(cell: Cell, runs: Runs) -> dict[str, Any]:
    began = time.perf_counter()
    numbers = cell.measure(runs)
    return make_record(cell, runs, numbers, time.perf_counter() - began)


def _keep(folder: Folder, cell: Cell, part: Runs | dict[str, Any]) -> None:
    if isinstance(part, Runs):
        folder.keep(cell, part)
    else:
        folder.finish(cell, part)
