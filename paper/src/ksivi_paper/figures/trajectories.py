"""Paths with bands."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksivi.report import save

from .style import TRUTH, colour, legend, method_grid

Band = dict[str, Any]


def trajectories(
    path: str | os.PathLike, rows: Sequence[tuple[str, Sequence[tuple[str, Band, Band]]]]
) -> None:
    """Means and 95% intervals of every coordinate, with one panel per method and the truth in
    black.

    **Arguments:**

    - `rows`: a title, and for each method its name, its band and the band of the truth: `{"mean",
        "low", "high"}`.
    """
    figure, axes = method_grid(rows, 2.5, _bands, sharey="row")
    for line, (_, row) in zip(axes, rows, strict=True):
        _frame(line[0], [truth for _, _, truth in row])
    for axis in axes[-1]:
        axis.set_xlabel("t")
    legend(figure, axes.ravel())
    save(figure, path)


def _bands(axis: Any, method: str, band: Band, truth: Band) -> None:
    mean, low, high = (np.asarray(band[name], float) for name in ("mean", "low", "high"))
    t = np.arange(1, len(mean) + 1) / len(mean)
    axis.fill_between(t, low, high, color=colour(method), alpha=0.3, linewidth=0)
    axis.plot(t, mean, color=colour(method), linewidth=1.3)
    axis.plot(t, np.asarray(truth["mean"], float), color=TRUTH, linewidth=0.9, label="truth: mean")
    for name in ("low", "high"):
        text = "truth: 95% interval" if name == "low" else None
        axis.plot(
            t, np.asarray(truth[name], float), color=TRUTH, linewidth=0.7, linestyle=":", label=text
        )
    axis.set(xlim=(0, 1), xticks=(0, 0.5, 1))


def _frame(axis: Any, truths: list[Band]) -> None:
    """Limits from the truth, so that a method that is far away does not flatten the others."""
    low = min(min(truth["low"]) for truth in truths)
    high = max(max(truth["high"]) for truth in truths)
    margin = 0.2 * (high - low)
    axis.set_ylim(low - margin, high + margin)
