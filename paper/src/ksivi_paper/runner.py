"""The runner: runs all cells that have no record yet, one after another or on a cluster."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from ksivi.executors import Executor, Local, Lost

from .cells import Cell, TrainedRuns
from .claims import Claims
from .records import Folder, make_record

_ERRORS = (ValueError, ImportError, RuntimeError, OSError)


@dataclasses.dataclass(frozen=True)
class CellOutcome:
    """How a cell ended. `state` is "kept" (from before), "trained", "measured", "not trained",
    "running elsewhere" or "could not run: …"."""

    cell: Cell
    state: str
    seconds: float


def run_cells(
    cells: Iterable[Cell],
    folder: Folder,
    *,
    train: bool = True,
    measure: bool = True,
    on_end: Callable[[CellOutcome], None] = lambda outcome: None,
    executor: Executor | None = None,
) -> list[CellOutcome]:
    """Trains and measures cells. Whatever is finished already is not run again.

    A cell whose data or packages are missing, or whose workers die, does not stop the others.
    Several processes may run the same cells in the same folder: each passes over the cells that
    another one is running.

    **Arguments:**

    - `train`, `measure`: whether to train, and whether to measure. Only training needs an
        accelerator, so the two can be done on different machines. With `train=False`, cells that
        are not trained yet are skipped.
    - `on_end`: called after each cell.
    - `executor`: where cells run. Default: in this process. Only this process reads and writes
        files.
    """
    outcomes: list[CellOutcome] = []
    claims = Claims(folder.path)

    def end(cell: Cell, state: str, seconds: float) -> None:
        claims.release(cell)
        outcomes.append(CellOutcome(cell, state, seconds))
        on_end(outcomes[-1])

    jobs = _jobs(cells, folder, claims, train, measure, end)
    with (
        claims,
        closing((executor or Local()).run(_work, jobs, lambda job, message: None)) as parts,
    ):
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
    """A cell with work left, and its trained runs if it has some."""

    cell: Cell
    runs: TrainedRuns | None
    measure: bool

    def __str__(self) -> str:
        return f"{self.cell.experiment}/{self.cell.name}"


@dataclasses.dataclass(frozen=True)
class _Ended:
    state: str
    seconds: float


def _jobs(
    cells: Iterable[Cell],
    folder: Folder,
    claims: Claims,
    train: bool,
    measure: bool,
    end: Callable[[Cell, str, float], None],
) -> Iterator[_Job]:
    """Yields the cells that have work left. The others end here."""
    for cell in cells:
        began = time.perf_counter()
        try:
            if not claims.take(cell):
                end(cell, "running elsewhere", 0.0)
                continue
            kept = folder.record(cell) is not None
            runs = None if kept else folder.runs(cell)
        except _ERRORS as error:
            end(cell, f"could not run: {error}", time.perf_counter() - began)
            continue
        if kept or (runs is None and not train) or (runs is not None and not measure):
            state = "kept" if kept else "not trained" if runs is None else "trained"
            end(cell, state, time.perf_counter() - began)
        else:
            yield _Job(cell, runs, measure)


def _work(
    job: _Job, report: Callable[[Any], Any]
) -> Iterator[TrainedRuns | dict[str, Any] | _Ended]:
    """Yields the trained runs if they are new, then the record, then how the cell ended."""
    began, state = time.perf_counter(), "measured" if job.measure else "trained"
    try:
        runs = job.runs
        if runs is None:
            runs = job.cell.train()
            yield runs
        if job.measure:
            yield _measured(job.cell, runs)
    except _ERRORS as error:
        state = f"could not run: {error}"
    yield _Ended(state, time.perf_counter() - began)


def _measured(cell: Cell, runs: TrainedRuns) -> dict[str, Any]:
    began = time.perf_counter()
    numbers = cell.measure(runs)
    return make_record(cell, runs, numbers, time.perf_counter() - began)


def _keep(folder: Folder, cell: Cell, part: TrainedRuns | dict[str, Any]) -> None:
    if isinstance(part, TrainedRuns):
        folder.keep(cell, part)
    else:
        folder.finish(cell, part)
