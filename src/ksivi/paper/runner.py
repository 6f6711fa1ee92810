"""The runner: every cell that has no record yet, one after another."""

import dataclasses
import time
from collections.abc import Callable, Iterable

from .cells import Cell
from .records import Folder


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
) -> list[Outcome]:
    """Finishes cells; a finished one is not run again, and neither is finished training.

    **Arguments:**

    - `train`, `measure`: whether to do that half. Training wants an accelerator and measuring does not, so that they
        may be done on two machines; without training, cells that are not trained are passed over.
    - `tell`: called after each cell.

    A cell whose data or packages are missing does not stop the others.
    """
    outcomes = []
    for cell in cells:
        began = time.perf_counter()
        try:
            state = _finish(cell, folder, train, measure)
        except (ValueError, ImportError, RuntimeError, OSError) as error:
            state = f"could not run: {error}"
        outcomes.append(Outcome(cell, state, time.perf_counter() - began))
        tell(outcomes[-1])
    return outcomes


def _finish(cell: Cell, folder: Folder, train: bool, measure: bool) -> str:
    if folder.record(cell) is not None:
        return "kept"
    runs = folder.runs(cell)
    if runs is None and not train:
        return "not trained"
    if runs is None:
        runs = cell.train()
        folder.keep(cell, runs)
    if not measure:
        return "trained"
    began = time.perf_counter()
    numbers = cell.measure(runs)
    folder.finish(cell, runs, numbers, time.perf_counter() - began)
    return "measured"
