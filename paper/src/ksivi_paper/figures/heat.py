"""A heat map: one number for every method on every problem, legible without its colours."""

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksivi.report import panels, save

_MAP = "Blues"
"""One hue from light to dark, so that everyone sees the same order."""
_HEIGHT, _DARK, _PALEST, _DARKEST = 0.33, 0.66, 0.03, 0.9


@dataclasses.dataclass(frozen=True)
class Square:
    """One square: a number, infinite if there is none, or None if nothing has run; and whether some
    runs failed."""

    value: float | None
    failed: bool = False


@dataclasses.dataclass(frozen=True)
class Block:
    """Squares with one scale, in columns.

    **Attributes:**

    - `rows`: the squares of each method.
    - `worst`: the number at which the colour is darkest. It is palest at 1.
    - `decimals`: of numbers below 10.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Square]]
    worst: float
    decimals: int = 1


def squares(path: str | os.PathLike, names: Sequence[str], blocks: Sequence[Block]) -> None:
    """Blocks of squares side by side, with one row per method. The colour is logarithmic.

    **Arguments:**

    - `names`: the names of the methods.
    """
    widths = [len(block.columns) for block in blocks]
    figure, axes = panels(
        1, len(blocks), _HEIGHT * len(names) + 1.5, width_ratios=widths, sharey=True
    )
    for axis, block in zip(axes[0], blocks, strict=True):
        _draw(axis, block)
    axes[0, 0].set_yticks(range(len(names)), names, fontsize=10)
    save(figure, path)


def _draw(axis: Any, block: Block) -> None:
    shades = [[_shade(square.value, block.worst) for square in row] for row in block.rows]
    axis.imshow(np.asarray(shades), cmap=_MAP, vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(block.rows):
        for j, square in enumerate(row):
            colour = "white" if shades[i][j] > _DARK else "#1a1a1a"
            words = _words(square, block.decimals)
            axis.text(j, i, words, ha="center", va="center", color=colour, fontsize=10)
    axis.set_title(block.title, fontsize=11, pad=8)
    axis.set_xticks(range(len(block.columns)), block.columns, rotation=40, ha="right", fontsize=10)
    axis.tick_params(length=0)
    axis.set_xticks(np.arange(len(block.columns) - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(len(block.rows) - 1) + 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=2)
    axis.tick_params(which="minor", length=0)
    axis.spines[:].set_visible(False)


def _shade(value: float | None, worst: float) -> float:
    """0 to 1, and not a number, which is drawn as white, where there is nothing."""
    if value is None:
        return math.nan
    share = math.log(max(value, 1.0)) / math.log(worst) if math.isfinite(value) else 1.0
    return _PALEST + (_DARKEST - _PALEST) * min(share, 1.0)


def _words(square: Square, decimals: int) -> str:
    if square.value is None:
        return "–"
    mark = "†" if square.failed else ""
    if not math.isfinite(square.value):
        return f"×{mark}"
    if square.value >= 1_000:
        return f">999{mark}"
    return f"{square.value:.{0 if square.value >= 9.95 else decimals}f}{mark}"
