"""One figure of several methods on several posteriors, each over exact draws."""

import os
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._figures import frame, new_figure, own_style

_PAPER, _INK, _SOFT = "#ffffff", "#1a1a1a", "#6b6b6b"
_RIGHT, _WARNED, _WRONG = "#1a7f4b", "#b45309", "#c0262d"
_DOTS = ("#1f5fa8", "#8a5a00", "#7b3fa0")
_SHOWN, _RAREST, _HEADLINE, _CHARACTERS = 1_500, 20_000, 0.24, 34
"""Draws shown; a cell of the truth is grey from this share of one in so many draws on; the room
above a panel's draws, as a share of their height; and the characters in a line of settings."""

_STYLE = {"font.size": 11, "axes.edgecolor": "#c4c4c4", "axes.linewidth": 0.8}


class AnswerPanel(NamedTuple):
    """The answer of one method: draws of two coordinates, whether they are right, and what the
    method says about them."""

    draws: np.ndarray
    right: bool
    warns: bool
    says: str


class PosteriorColumn(NamedTuple):
    """A column: a title, the names of two coordinates, exact draws of them, and a panel for each
    method."""

    title: str
    names: tuple[str, str]
    truth: np.ndarray
    panels: Sequence[AnswerPanel]


@own_style(_STYLE)
def answers_and_truth(
    path: str | os.PathLike,
    methods: Sequence[tuple[str, str]],
    posteriors: Sequence[PosteriorColumn],
) -> None:
    """A row per method, a column per posterior: exact draws in grey, draws of the method on them.

    **Arguments:**

    - `path`: the output file. Its suffix decides the format.
    - `methods`: name and settings of each row.
    - `posteriors`: the columns. One whose methods were interrupted has fewer panels than others.
    """
    figure = new_figure(figsize=(1.2 + 3.2 * len(posteriors), 0.9 + 3.0 * len(methods)))
    figure.set_facecolor(_PAPER)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    axes = figure.subplots(len(methods), len(posteriors), squeeze=False)
    for column, posterior in zip(axes.T, posteriors, strict=True):
        column[0].set_title(posterior.title, fontsize=17, color=_INK, pad=10)
        for row, axis in enumerate(column):
            _truth(axis, posterior)
            if row < len(posterior.panels):
                _answer(axis, posterior.panels[row], _DOTS[row % len(_DOTS)])
        column[-1].set_xlabel(posterior.names[0], fontsize=10, color=_SOFT)
    for row, (name, settings) in zip(axes, methods, strict=True):
        _name(row[0], name, settings)
    figure.supxlabel("Grey: exact draws. Dots: draws of the method.", fontsize=11, color=_SOFT)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _truth(axis: Any, posterior: PosteriorColumn) -> None:
    """The exact draws as shades of grey, which also fix the frame."""
    low, high = frame(posterior.truth)
    axis.hist2d(
        *posterior.truth.T,
        bins=70,
        range=list(zip(low, high, strict=True)),
        cmap=_greys(),
        cmin=max(1, len(posterior.truth) // _RAREST),
        norm="log",
    )
    room = _HEADLINE * (high[1] - low[1])
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1] + room))
    axis.set_ylabel(posterior.names[1], fontsize=10, color=_SOFT)
    axis.set_xticks([])
    axis.set_yticks([])


def _greys() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("truth", ["#ececec", "#a8a8a8"])


def _answer(axis: Any, panel: AnswerPanel, color: str) -> None:
    draws = panel.draws[:_SHOWN]
    axis.scatter(draws[:, 0], draws[:, 1], s=5, color=color, alpha=0.5, linewidths=0)
    word, at = _judged(panel)
    here = {"transform": axis.transAxes, "ha": "center", "va": "top", "color": at}
    axis.text(0.5, 0.975, word, fontsize=14, fontweight="bold", **here)
    axis.text(0.5, 0.89, panel.says, fontsize=10, **here)
    for side in axis.spines.values():
        side.set(color=at, linewidth=2)


def _judged(panel: AnswerPanel) -> tuple[str, str]:
    """The headline of a panel, and its colour."""
    if panel.right:
        return ("✓ right, but warns", _WARNED) if panel.warns else ("✓ right", _RIGHT)
    return ("✗ wrong, and says so", _WARNED) if panel.warns else ("✗ wrong, no warning", _WRONG)


def _name(axis: Any, name: str, settings: str) -> None:
    """The method at the left of its row."""
    here = {"transform": axis.transAxes, "rotation": 90, "ha": "right", "va": "center"}
    lines = textwrap.fill(settings, _CHARACTERS)
    axis.text(-0.24, 0.5, name, fontsize=17, color=_INK, **here)
    axis.text(-0.11, 0.5, lines, fontsize=9, color=_SOFT, multialignment="center", **here)
