"""Trouble at run time: not-a-number, and samples that fly apart."""

import dataclasses

import numpy as np

from ..posterior import Status

_RUNAWAY = 1e4
"""A Stein ratio above this says that the draws are about 100 times too wide."""


@dataclasses.dataclass(frozen=True)
class Trouble:
    """What went wrong, at which step, and the step before which the parameters were good."""

    what: str
    step: int
    limit: int

    def status(self, kept: int) -> Status:
        return Status("diverged", f"{self.what} at step {self.step:,}; the parameters are those of step {kept:,}")


def find_trouble(
    records: dict[str, np.ndarray], early_ratio: np.ndarray, finite: np.ndarray, first: int
) -> list[Trouble | None]:
    """What went wrong in a chunk, for each run.

    **Arguments:**

    - `records`: what the steps recorded, (runs, steps).
    - `early_ratio`: the Stein ratios of the first chunk, (runs, steps).
    - `finite`: whether each run's parameters are finite after the chunk.
    - `first`: the chunk's first step.
    """
    return [
        _trouble(records["loss"][i], records["stein_ratio"][i], early_ratio[i], bool(finite[i]), first)
        for i in range(len(finite))
    ]


def _trouble(loss: np.ndarray, ratio: np.ndarray, early: np.ndarray, finite: bool, first: int) -> Trouble | None:
    bad = np.flatnonzero(~np.isfinite(loss))
    if bad.size:
        step = first + int(bad[0])
        return Trouble(f"the loss became {loss[bad[0]]}", step, step)
    if not finite:
        last = first + len(loss)
        return Trouble("a gradient became NaN or infinite", last - 1, last)
    width = np.median(ratio)
    # A start that is far too wide narrows; a run that widens a hundredfold beyond both bounds is running away.
    if width > _RUNAWAY and width > 100 * abs(np.median(early)):
        times = np.sqrt(width)
        return Trouble(f"the draws ran away, about {times:,.0f} times too wide,", first + len(loss) - 1, first)
    return None
