"""Points with a line: correlations, the smoothness of networks, the variance of estimators."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksivi.report import FAINT, WIDTH, dress, panels, save

from .style import colour, label, legend, marker, plain_logs

_STAGES = ("#56b4e9", "#e07b00", "#6a51a3", "#009e73", "#1a1a1a", "#b07aa1")
_STAGE_MARKERS = "o^sDvP"


@dataclasses.dataclass(frozen=True)
class Line:
    """y = slope · x + intercept."""

    slope: float
    intercept: float

    def at(self, x: np.ndarray) -> np.ndarray:
        return self.slope * x + self.intercept


def correlations(
    path: str | os.PathLike, shown: Sequence[tuple[str, np.ndarray, np.ndarray, Line]]
) -> None:
    """Correlation coefficients of the draws against those of the truth, with one panel and one line
    per method.

    **Arguments:**

    - `shown`: the method, the coefficients of the truth and of the draws, and the line.
    """
    edge = 1.05 * max(np.nanmax(np.abs([truth, draws])) for _, truth, draws, _ in shown)
    figure, axes = panels(1, len(shown), WIDTH / max(3, len(shown)) + 0.6, sharey=True)
    for axis, (method, truth, draws, line) in zip(axes[0], shown, strict=True):
        ends = np.array([-1.0, 1.0])
        axis.plot(ends, ends, color="black", linewidth=0.8, linestyle=":")
        axis.scatter(truth, draws, s=7, color=colour(method), alpha=0.55, linewidths=0)
        axis.plot(ends, line.at(ends), color=colour(method), linewidth=1.5)
        axis.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
        axis.set_xlabel("truth", fontsize=9)
        dress(axis, f"{label(method)}\nslope {line.slope:.2f}")
    axes[0, 0].set_ylabel("draws", fontsize=9)
    save(figure, path)


@dataclasses.dataclass(frozen=True)
class Smoothness:
    """A quantity at points z, at several stages of training, with the G of its bound G (1 +
    ‖z‖)."""

    title: str
    z_norm: np.ndarray
    stages: Sequence[tuple[str, np.ndarray, float]]


def smoothness(
    path: str | os.PathLike, rows: Sequence[Sequence[Smoothness]], names: Sequence[str]
) -> None:
    """Quantities of a network against ‖z‖, with the bounds G (1 + ‖z‖) and one column per quantity.

    **Arguments:**

    - `names`: the names of the quantities.
    """
    figure, axes = panels(len(rows), len(names), 3.1 * len(rows))
    for line, row in zip(axes, rows, strict=True):
        for axis, one, name in zip(line, row, names, strict=True):
            axis.set_visible(bool(one.stages))
            _stages(axis, one)
            axis.set_xlabel("‖z‖", fontsize=9)
            axis.set_ylabel(name, fontsize=9)
            dress(axis, one.title)
    save(figure, path)


def _stages(axis: Any, one: Smoothness) -> None:
    ends = np.array([one.z_norm.min(), one.z_norm.max()])
    for (name, values, bound), ink, shape in zip(one.stages, _STAGES, _STAGE_MARKERS, strict=False):
        axis.scatter(
            one.z_norm, values, s=9, color=ink, marker=shape, alpha=0.6, linewidths=0, label=name
        )
        axis.plot(ends, bound * (1 + ends), color=ink, linewidth=1.2, linestyle="--")
    if one.stages:
        axis.set_ylim(bottom=0)
        beside = {
            "loc": "upper left",
            "bbox_to_anchor": (1.0, 1.0),
            "title": "steps",
            "title_fontsize": 8,
        }
        axis.legend(frameon=False, fontsize=8, handletextpad=0.2, borderaxespad=0.2, **beside)


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Numbers of one estimator with one kind of bandwidth, by N. The line fits the logarithms."""

    method: str
    bandwidth: str
    sizes: np.ndarray
    variance: np.ndarray
    error: np.ndarray
    seconds: np.ndarray
    line: Line


def estimators(path: str | os.PathLike, shown: Sequence[Estimates]) -> None:
    """Variance of the gradient against N with fitted lines, and the time of a gradient, on
    logarithmic axes."""
    figure, axes = panels(1, 2, 3.9)
    for one in shown:
        _estimates(axes[0, 0], axes[0, 1], one)
    for axis, name in zip(
        axes[0], ("variance of the gradient, tr Cov", "milliseconds a gradient"), strict=True
    ):
        axis.set(xscale="log", yscale="log", xlabel="N", ylabel=name)
        axis.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.5)
        _sizes(axis, sorted({int(n) for one in shown for n in one.sizes}))
        dress(axis, "")
    plain_logs(axes[0, 1])
    legend(figure, axes[0], 2)
    save(figure, path)


def _estimates(left: Any, right: Any, one: Estimates) -> None:
    fixed = one.bandwidth == "fixed"
    style = {"color": colour(one.method), "marker": marker(one.method), "markersize": 5}
    style |= {"markerfacecolor": colour(one.method) if fixed else "white"}
    name = f"{label(one.method)}, {one.bandwidth} bandwidth"
    left.errorbar(
        one.sizes, one.variance, one.error, linestyle="none", linewidth=1, label=name, **style
    )
    fitted = np.exp(one.line.at(np.log(one.sizes)))
    left.plot(
        one.sizes, fitted, color=colour(one.method), linewidth=1, linestyle="-" if fixed else "--"
    )
    right.plot(
        one.sizes, 1_000 * one.seconds, linewidth=1, linestyle="-" if fixed else "--", **style
    )


def _sizes(axis: Any, sizes: list[int]) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    axis.set_xticks(sizes, [str(n) for n in sizes])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_formatter(NullFormatter())
