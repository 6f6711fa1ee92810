"""Two-dimensional histograms with the contours of their targets."""

import os
from collections.abc import Sequence

import numpy as np

from ksivi import Target
from ksivi.report import contours, dress, panels, save

_HEIGHT = 3.0


def histograms(path: str | os.PathLike, rows: Sequence[Sequence[tuple[str, Target, dict]]]) -> None:
    """Counts of draws in blue, contours of the target in black.

    **Arguments:**

    - `rows`: for each panel a title, a target, and `{"low", "high", "counts"}`: two corners, and
        counts by x₁ and x₂.
    """
    columns = max(len(row) for row in rows)
    figure, axes = panels(len(rows), columns, _HEIGHT * len(rows) + 0.3)
    for line, row in zip(axes, rows, strict=True):
        for axis, (title, target, found) in zip(line, row, strict=False):
            (left, bottom), (right, top) = found["low"], found["high"]
            counts = np.asarray(found["counts"], float).T
            axis.imshow(
                counts, "Blues", origin="lower", extent=(left, right, bottom, top), aspect="auto"
            )
            contours(axis, target, np.asarray(found["low"]), np.asarray(found["high"]))
            dress(axis, title)
        for axis in line[len(row) :]:
            axis.set_visible(False)
    save(figure, path)
