"""Records by cell, and the numbers in them."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..cells import Cell
from ..experiments import EXPERIMENTS
from ..methods import ALL_EXPERIMENTS
from ..records import agree

CellRecord = dict[str, Any]
Experiments = Mapping[str, Callable[[str], list[Cell]]]


@dataclasses.dataclass(frozen=True)
class Spread:
    """One number from several runs; None for a run whose number is not finite.

    **Attributes:**

    - `redraw_sd`: the standard deviation between redraws of one run, if the number is a mean over
        redraws.
    """

    values: tuple[float | None, ...]
    diverged: int = 0
    redraw_sd: float = 0.0

    @property
    def finite(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def lost(self) -> int:
        return len(self.values) - len(self.finite)

    @property
    def mean(self) -> float:
        return float(np.mean(self.finite)) if self.finite else math.inf

    @property
    def sd(self) -> float:
        return float(np.std(self.finite, ddof=1)) if len(self.finite) > 1 else 0.0

    @property
    def sd_of_one(self) -> float:
        """The standard deviation of one run measured once: over runs and redraws together."""
        return math.hypot(self.sd, self.redraw_sd)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One number of a table: its place in the records, and the paper's number.

    **Attributes:**

    - `step`, `rate`: the snapshot and the learning rate, if a cell has several. Default: the last
        step.
    - `decimals`: the number of decimals that the paper prints.
    """

    experiment: str
    cell: str
    field: str = "sliced_w2"
    paper: float | None = None
    decimals: int = 4
    step: int | None = None
    rate: float | None = None

    @property
    def path(self) -> str:
        """Its key in the remarks."""
        parts = [
            self.experiment,
            self.cell,
            None if self.field == "sliced_w2" else self.field,
            self.rate,
            self.step,
        ]
        return "/".join(str(part) for part in parts if part is not None)


class RecordIndex:
    """The records and the cells of a page.

    **Arguments:**

    - `records`: all records of a folder. Those of other pages are ignored.
    - `preset`: the preset of the cells.
    - `experiments`: the experiments of the page. Default: the paper's.
    """

    def __init__(
        self,
        records: Iterable[CellRecord],
        preset: str = "paper",
        experiments: Experiments = EXPERIMENTS,
    ):
        self.preset, self.experiments = preset, experiments
        self.cells = {
            (c.experiment, c.name): c for make in experiments.values() for c in make(preset)
        }
        found = {(record["experiment"], record["cell"]): record for record in records}
        found = {key: record for key, record in found.items() if self._has(*key)}
        self.records = {
            key: record
            for key, record in found.items()
            if key in self.cells and agree(record["spec"], self.cells[key].spec)
        }
        self.outdated = [record for key, record in found.items() if key not in self.records]
        """Records of cells that no longer exist, or have other settings now.

        The page leaves them out.
        """

    def _has(self, experiment: str, cell: str) -> bool:
        """Whether a record belongs to this page, even if its cell no longer exists."""
        others = set(ALL_EXPERIMENTS) - set(self.experiments)
        return (experiment, cell) in self.cells or experiment not in others

    def get(self, experiment: str, cell: str) -> CellRecord | None:
        return self.records.get((experiment, cell))

    def of(self, experiment: str) -> list[CellRecord]:
        return [record for (name, _), record in self.records.items() if name == experiment]

    def expects(self, experiment: str, cell: str) -> bool:
        """Whether the preset has such a cell."""
        return (experiment, cell) in self.cells

    def steps(self, experiment: str, cell: str) -> list[int]:
        """The steps of the snapshots and of the end."""
        record = self.get(experiment, cell)
        return (
            sorted({row["step"] for row in record["numbers"]["rows"] if "step" in row})
            if record
            else []
        )

    def spread(self, entry: Entry) -> Spread | None:
        """The number of an entry over the runs; None if there is no such record or number."""
        record = self.get(entry.experiment, entry.cell)
        rows = _rows(record, entry) if record else []
        values = tuple(row[entry.field] for row, _ in rows if entry.field in row)
        redraws = [row.get(f"{entry.field}_sd") or 0.0 for row, _ in rows]
        diverged = sum(status.startswith("diverged") for _, status in rows)
        return (
            Spread(values, diverged, float(np.sqrt(np.mean(np.square(redraws)))))
            if values
            else None
        )

    def floor(self, entry: Entry) -> float | None:
        """The same number for the truth against other draws of the truth."""
        record = self.get(entry.experiment, entry.cell)
        return record["numbers"].get("floor", {}).get(entry.field) if record else None

    def shown(self, experiment: str, cell: str, name: str) -> dict[str, Any] | None:
        """The data that a cell keeps for a figure."""
        record = self.get(experiment, cell)
        return record["numbers"].get("shown", {}).get(name) if record else None

    def missing(self) -> list[Cell]:
        return [cell for key, cell in self.cells.items() if key not in self.records]


def _rows(record: CellRecord, entry: Entry) -> list[tuple[dict[str, Any], str]]:
    """The rows with the step and the learning rate of an entry, each with the status of its run."""
    rows, status = record["numbers"]["rows"], record["status"] or [""]
    pairs = [(row, status[i % len(status)]) for i, row in enumerate(rows)]
    last = max((row.get("step", 0) for row in rows), default=0)
    step = last if entry.step is None else entry.step
    pairs = [(row, how) for row, how in pairs if row.get("step", step) == step]
    return [
        (row, how) for row, how in pairs if entry.rate is None or row["learning_rate"] == entry.rate
    ]
