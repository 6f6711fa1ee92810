"""Ranks and intervals of a calibration.

They show whether posteriors are too narrow, too wide or biased.
"""

from typing import Any

import numpy as np
from jaxtyping import Int

from ._figures import dress, own_style
from ._style import FAINT, panels

_SHOWN, _COLUMNS = 12, 4


@own_style()
def rank_histograms(found: Any) -> Any:
    """Histograms of the ranks of the first twelve parameters, and the coverage of the intervals.

    Uniform ranks are near the line, and 99% of their counts are inside the band. A hill means that
    posteriors are too wide, a valley that they are too narrow, and a slope that they are biased.
    """
    names = found.names[:_SHOWN]
    rows = -(-(len(names) + 1) // _COLUMNS)
    figure, axes = panels(rows, _COLUMNS, 2.5 * rows)
    flat = axes.ravel()
    for axis, name, row, p in zip(flat, names, found.counts, found.p_values, strict=False):
        _draw_ranks(axis, row, len(found.replications))
        dress(axis, f"{name}, p = {p:.2g}")
    flat[0].set_ylabel("fits")
    _draw_coverage(flat[len(names)], found)
    for axis in flat[len(names) + 1 :]:
        axis.axis("off")
    return figure


def _draw_ranks(axis: Any, row: Int[np.ndarray, " b"], size: int) -> None:
    from scipy.stats import binom

    bins = len(row)
    low, high = binom.ppf((0.005, 0.995), size, 1 / bins)
    axis.axhspan(low, high, color=FAINT, alpha=0.3, linewidth=0)
    axis.axhline(size / bins, color=FAINT, linewidth=1)
    middles = (np.arange(bins) + 0.5) / bins
    axis.bar(middles, row, width=1 / bins, color="#0072b2", edgecolor="white", linewidth=0.5)
    axis.set_ylim(0, 1.15 * max(high, row.max()))
    axis.set_xlabel("rank of the true value", fontsize=9)


def _draw_coverage(axis: Any, found: Any) -> None:
    shares, errors = zip(*(found.coverage(level) for level in found.levels), strict=True)
    axis.plot([0.4, 1], [0.4, 1], "--", color=FAINT)
    axis.errorbar(
        found.levels, shares, yerr=2 * np.array(errors), fmt="o", color="#d55e00", capsize=3
    )
    axis.set_xlabel("level of intervals", fontsize=9)
    dress(axis, "coverage, all parameters")
