"""Finds trouble during a run: numbers that are not finite, and draws that run away."""

import dataclasses

import numpy as np

from ..results import Code, Status

_RUNAWAY = 1e4
"""A Stein ratio above this means that the draws are about 100 times too wide."""
_SKIPPED = 0.05
"""Maximum share of the steps of a chunk that may be skipped."""
_WINDOW = 20
"""Number of steps for the median of the early and of the current ratio."""


@dataclasses.dataclass(frozen=True)
class Trouble:
    """What went wrong.

    **Attributes:**

    - `what`: a description.
    - `step`: the step at which it was noticed.
    - `limit`: the number of steps that led to the last good parameters.
    - `not_finite`: the step with the first quantity that was not finite, if any.
    """

    what: str
    step: int
    limit: int
    not_finite: int | None = None

    def status(self, kept: int) -> Status:
        ending = Code.DIVERGED.doubt(
            f"{self.what} at step {self.step:,}; returning the parameters from step {kept:,}"
        )
        return Status.of_doubts("diverged", [ending])


def early_ratio(ratios: np.ndarray) -> np.ndarray:
    """The early Stein ratio of each run, from the records of the first chunk."""
    return np.array([_middle(row[:_WINDOW]) for row in ratios])


def find_trouble(
    loss: np.ndarray, ratio: np.ndarray, early: float, finite: bool, first: int, skips: bool = False
) -> Trouble | None:
    """What went wrong in a chunk of one run, or None.

    **Arguments:**

    - `loss`, `ratio`: the loss and Stein ratio of each step.
    - `early`: the run's early Stein ratio.
    - `finite`: whether the parameters are finite after the chunk.
    - `first`: the chunk's first step.
    - `skips`: whether steps that are not finite were skipped, so that a few do not matter.
    """
    bad, end = np.flatnonzero(~np.isfinite(loss)), first + len(loss)
    if skips and bad.size > max(1, _SKIPPED * len(loss)):
        return Trouble(
            f"the loss was not finite in {bad.size:,} of {len(loss):,} steps,",
            end - 1,
            first,
            first + int(bad[0]),
        )
    if bad.size and not skips:
        step = first + int(bad[0])
        # The parameters of this step gave the bad loss; those of the step before gave a finite one.
        return Trouble(f"the loss became {loss[bad[0]]}", step, step - 1, step)
    if not finite:
        return Trouble("a gradient became NaN or infinite", end - 1, end - 1, end - 1)
    # A family that starts far too wide gets narrower. A run that exceeds both bounds is running
    # away.
    width = abs(_middle(ratio[-_WINDOW:]))
    if width > _RUNAWAY and width > 100 * abs(early):
        return Trouble(
            f"the draws ran away, about {np.sqrt(width):,.0f} times too wide,", end - 1, first
        )
    return None


def _middle(ratios: np.ndarray) -> float:
    """The median over the steps that were taken."""
    taken = ratios[~np.isnan(ratios)]
    return float(np.median(taken)) if taken.size else float("nan")
