"""Ranks and intervals of a calibration.

They show whether posteriors are too narrow, too wide or biased.
"""

from typing import Any

import numpy as np

from ._figures import dress, own_style
from ._style import FAINT, panels

_SHOWN, _COLUMNS = 12, 4


@own_style()
def rank_histograms(found: Any) -> Any:
    """Histograms of the ranks of the first twelve parameters, and the coverage of the intervals.

    The band contains 99% of the counts of uniform ranks. A hill means that posteriors are too wide,
    a valley that they are too narrow, and a slope that they are biased.
    """
    from scipy.stats import binom

    names = found.names[:_SHOWN]
    rows = -(-(len(names) + 1) // _COLUMNS)
    figure, axes = panels(rows, _COLUMNS, 2.4 * rows)
    flat, counts = axes.ravel(), found.counts
    size, bins = len(found.replications), counts.shape[1]
    low, high = binom.ppf((0.005, 0.995), size, 1 / bins)
    for axis, name, row, p in zip(flat, names, counts, found.p_values, strict=False):
        axis.axhspan(low, high, color=FAINT, alpha=0.3, linewidth=0)
        axis.bar(
            (np.arange(bins) + 0.5) / bins,
            row,
            width=1 / bins,
            color="#0072b2",
            edgecolor="white",
            linewidth=0.5,
        )
        dress(axis, f"{name}, p = {p:.2g}")
    _draw_coverage(flat[len(names)], found)
    for axis in flat[len(names) + 1 :]:
        axis.axis("off")
    return figure


def _draw_coverage(axis: Any, found: Any) -> None:
    shares, errors = zip(*(found.coverage(level) for level in found.levels), strict=True)
    axis.plot([0.4, 1], [0.4, 1], "--", color=FAINT)
    axis.errorbar(
        found.levels, shares, yerr=2 * np.array(errors), fmt="o", color="#d55e00", capsize=3
    )
    axis.set_xlabel("level of intervals")
    dress(axis, "coverage, all parameters")
