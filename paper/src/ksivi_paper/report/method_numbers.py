"""The numbers of the page of all methods: scores, failures and seconds of a method on a problem."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..methods import METHODS, cell_of
from .index import CellRecord, Entry, RecordIndex

FAR = 10
"""A run whose sliced W₂ is above this many floors has failed."""


@dataclasses.dataclass(frozen=True)
class Seconds:
    """The times of one batch of runs.

    **Attributes:**

    - `a_run`: wall-clock time of the batch over the number of runs, where compilation counts in
        full: what one run of the batch costs.
    - `a_step`: the time of one step of all runs of the batch together.
    """

    a_run: float
    a_step: float


def expected(index: RecordIndex, problems: Sequence[str]) -> list[str]:
    """The problems that the preset has."""
    return [name for name in problems if index.expects(*cell_of(name, METHODS[0], index.preset))]


def record(index: RecordIndex, problem: str, method: str) -> CellRecord | None:
    return index.get(*cell_of(problem, method, index.preset))


def entry(index: RecordIndex, problem: str, method: str, field: str, decimals: int = 4) -> Entry:
    experiment, cell = cell_of(problem, method, index.preset)
    return Entry(experiment, cell, field, decimals=decimals)


def floor(index: RecordIndex, problem: str, field: str) -> float | None:
    """The same number for the truth against itself, from the first record that has it."""
    found = (index.floor(entry(index, problem, method, field)) for method in METHODS)
    return next((one for one in found if one is not None), None)


def in_floors(index: RecordIndex, problem: str, method: str) -> float | None:
    """Sliced W₂ over its floor, of the median run: infinite if most runs have no finite number."""
    least = floor(index, problem, "sliced_w2")
    typical = median(index, problem, method, "sliced_w2")
    return None if typical is None or not least else typical / least


def median(index: RecordIndex, problem: str, method: str, field: str) -> float | None:
    found = index.spread(entry(index, problem, method, field))
    if found is None:
        return None
    return float(np.median([np.inf if value is None else value for value in found.values]))


def failures(index: RecordIndex, problem: str, method: str) -> tuple[int, int] | None:
    """How many runs failed, out of how many.

    A run failed if it diverged, if its number is not finite, or if its sliced W₂ is above `FAR`
    floors.
    """
    found = record(index, problem, method)
    if found is None:
        return None
    rows, status = found["numbers"]["rows"], found["status"]
    field = "sliced_w2" if "sliced_w2" in rows[0] else "rmse"
    least = floor(index, problem, field)
    most = np.inf if least is None else FAR * least
    lost = [
        how.startswith("diverged") or row[field] is None or row[field] > most
        for row, how in zip(rows, status, strict=True)
    ]
    return sum(lost), len(lost)


def seconds(index: RecordIndex, problem: str, method: str) -> Seconds | None:
    found = record(index, problem, method)
    if found is None:
        return None
    total, a_step = found["seconds"]["training"], found["seconds"]["a_step"]
    runs = len(found["status"])
    if "sliced_w2" not in found["numbers"]["rows"][0]:
        # The time of networks includes the choice of settings, which all runs share.
        return Seconds(total / runs, a_step)
    stepping = min(total, a_step * found["spec"]["plan"]["num_steps"])
    return Seconds(total - stepping + stepping / runs, a_step)
