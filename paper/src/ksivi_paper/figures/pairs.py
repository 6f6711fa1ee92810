"""Marginal and pairwise densities of draws and of the truth."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksivi.report import WIDTH, frame, mass_levels, new_figure, save

from .style import TRUTH, colour, label

_GRID = 48
_MASSES = (0.9, 0.6, 0.3)


@dataclasses.dataclass(frozen=True)
class Curves:
    """Densities of every coordinate and of every pair, on a grid."""

    marginals: list[np.ndarray]
    pairs: dict[tuple[int, int], np.ndarray]


def corners(
    path: str | os.PathLike,
    truth: np.ndarray,
    methods: Sequence[tuple[str, np.ndarray]],
    names: Sequence[str],
    columns: int,
    height: float,
) -> None:
    """For each method: marginal densities on the diagonal, contours of pairs below, and the truth
    in black.

    **Arguments:**

    - `truth`: draws of the coordinates to show.
    - `methods`: the name and the draws of each method.
    - `names`: the names of the coordinates.
    - `columns`: the number of methods in a row.
    - `height`: the height of a row in inches.
    """
    rows = -(-len(methods) // columns)
    figure = new_figure(figsize=(WIDTH, height * rows))
    places = np.ravel(figure.subfigures(rows, columns, squeeze=False, wspace=0.03, hspace=0.03))
    grid = [np.linspace(a, b, _GRID) for a, b in zip(*frame(truth), strict=True)]
    exact = _densities(truth, grid)
    for place, (method, draws) in zip(places, methods, strict=False):
        found = _densities(draws, grid)
        place.suptitle(label(method), fontsize=11, color=colour(method))
        _corner(place, grid, [(exact, TRUTH), (found, colour(method))], names)
    save(figure, path)


def _corner(
    place: Any, grid: list[np.ndarray], layers: Sequence[tuple[Curves, str]], names: Sequence[str]
) -> None:
    axes = place.subplots(
        len(names), len(names), squeeze=False, gridspec_kw={"wspace": 0.04, "hspace": 0.04}
    )
    for i, j in np.ndindex(axes.shape):
        axis = axes[i, j]
        axis.set(xticks=[], yticks=[])
        if j > i:
            axis.set_visible(False)
            continue
        for curves, ink in layers:
            _panel(axis, grid, curves, i, j, ink)
        axis.set_xlim(grid[j][0], grid[j][-1])
        axis.set_ylim(
            *(
                (grid[i][0], grid[i][-1])
                if j < i
                else (0, _top([curves for curves, _ in layers], i))
            )
        )
        axis.set_xlabel(names[j] if i == len(names) - 1 else "", fontsize=9)
        axis.set_ylabel(names[i] if j == 0 and i else "", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)


def _panel(axis: Any, grid: list[np.ndarray], curves: Curves, i: int, j: int, ink: str) -> None:
    if i == j and curves.marginals:
        axis.plot(grid[i], curves.marginals[i], color=ink, linewidth=1.2)
    elif (j, i) in curves.pairs:
        density = curves.pairs[j, i]
        axis.contour(
            grid[j],
            grid[i],
            density,
            levels=mass_levels(density, _MASSES),
            colors=ink,
            linewidths=0.9,
        )


def _top(layers: Sequence[Curves], i: int) -> float:
    """The upper limit of a marginal: enough for all curves, but at most three times that of the
    truth."""
    peaks = [float(curves.marginals[i].max()) for curves in layers if curves.marginals]
    return 1.08 * min(max(peaks), 3 * peaks[0])


def _densities(draws: np.ndarray, grid: list[np.ndarray]) -> Curves:
    """The densities of draws; none if draws are not finite, or are all the same."""
    if not np.isfinite(draws).all() or not (draws.std(axis=0) > 0).all():
        return Curves([], {})
    from scipy.stats import gaussian_kde

    marginals = [gaussian_kde(column)(points) for column, points in zip(draws.T, grid, strict=True)]
    pairs = {}
    for i in range(draws.shape[1]):
        for j in range(i):
            points = np.stack(np.meshgrid(grid[j], grid[i])).reshape(2, -1)
            pairs[j, i] = gaussian_kde(draws[:, [j, i]].T)(points).reshape(_GRID, _GRID)
    return Curves(marginals, pairs)
