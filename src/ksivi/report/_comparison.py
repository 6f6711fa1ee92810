"""The figure of a comparison, with one panel per method."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..targets import Target
from ._figures import contours, dress, frame, new_figure, own_style

_COLUMNS = 4
_TRUTH, _METHOD = "#8a8a8a", "#1f5fa8"


@own_style()
def methods_and_truth(
    path: str | os.PathLike,
    target: Target,
    truth: np.ndarray,
    panels: Sequence[tuple[str, np.ndarray]],
) -> None:
    """A figure of several methods and the truth: points in two dimensions, intervals in more.

    **Arguments:**

    - `path`: the output file. Its suffix decides the format.
    - `target`: for the contours.
    - `truth`: draws from the true posterior.
    - `panels`: the title and the draws of each method.
    """
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    flat = truth.shape[1] == 2
    figure = new_figure(figsize=(max(6.4, 3.2 * columns), 2.9 * rows + 0.7))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (title, draws) in zip(axes, panels, strict=False):
        if flat:
            _points(axis, target, truth, draws)
        else:
            _intervals(axis, truth, draws) if truth.shape[1] > 1 else _histograms(
                axis, truth, draws
            )
        dress(axis, title)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    dots = "draws as points; contours hold 20, 40, 60, 80 and 95% of the target's mass"
    bands = "mean and central 95% of each coordinate: the method in blue, the truth in grey"
    heights = "histograms: the method in blue, the truth in grey"
    shown = dots if flat else bands if truth.shape[1] > 1 else heights
    figure.supxlabel(f"{shown}\nbeside each name its sliced W₂ to the truth", fontsize=9)
    figure.savefig(path, dpi=130)


def _points(axis: Any, target: Target, truth: np.ndarray, draws: np.ndarray) -> None:
    low, high = frame(truth)
    axis.scatter(draws[:, 0], draws[:, 1], s=3, color=_METHOD, alpha=0.45, linewidths=0)
    contours(axis, target, low, high)
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def _histograms(axis: Any, truth: np.ndarray, draws: np.ndarray) -> None:
    (low,), (high,) = frame(truth)
    for points, colour in ((truth, _TRUTH), (draws, _METHOD)):
        axis.hist(points[:, 0], bins=40, range=(low, high), density=True, color=colour, alpha=0.5)


def _intervals(axis: Any, truth: np.ndarray, draws: np.ndarray) -> None:
    x = np.arange(truth.shape[1])
    for points, colour, alpha in ((truth, _TRUTH, 0.45), (draws, _METHOD, 0.3)):
        low, high = np.quantile(points, [0.025, 0.975], axis=0)
        axis.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, step=None)
        axis.plot(x, points.mean(axis=0), color=colour, linewidth=1.2)
    low, high = np.quantile(truth, [0.001, 0.999])
    margin = 0.25 * (high - low)
    axis.set(xlim=(0, x[-1]), ylim=(low - margin, high + margin))
