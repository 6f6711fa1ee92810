"""The runner: every cell that has no record yet, one after another."""

import dataclasses
import time
from collections.abc import Callable, Iterable

from .cells import Cell
from .records import Folder


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a cell ended: "kept" from before, "trained", "measured", or the reason why it could not run."""

    cell: Cell
    state: str
    seconds: float


def run(
    cells: Iterable[Cell],
    folder: Folder,
    *,
    train_only: bool = False,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Finishes cells; a finished one is not run again, and neither is finished training.

    **Arguments:**

    - `train_only`: leaves measuring, which wants no accelerator, for a later run.
    - `tell`: called after each cell.

    A cell whose data or packages are missing does not stop the others.
    """
    outcomes = []
    for cell in cells:
        began = time.perf_counter()
        try:
            state = _finish(cell, folder, train_only)
        except (ValueError, ImportError, RuntimeError) as error:
            state = f"could not run: {error}"
        outcomes.append(Outcome(cell, state, time.perf_counter() - began))
        tell(outcomes[-1])
    return outcomes


def _finish(cell: Cell, folder: Folder, train_only: bool) -> str:
    if folder.record(cell) is not None:
        return "kept"
    runs = folder.runs(cell)
    if runs is None:
        runs = cell.train()
        folder.keep(cell, runs)
    if train_only:
        return "trained"
    began = time.perf_counter()
    numbers = cell.measure(runs)
    folder.finish(cell, runs, numbers, time.perf_counter() - began)
    return "measured"
