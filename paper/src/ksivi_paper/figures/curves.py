"""Curves: measures and losses during training."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksivi.report import FAINT, dress, panels, save

from .style import colour, label, legend, marker, method_grid, plain_logs


@dataclasses.dataclass(frozen=True)
class Curve:
    """Means and standard deviations over runs, at some steps."""

    method: str
    steps: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves of several methods, and the floor: the value for the truth itself."""

    title: str
    curves: Sequence[Curve]
    floor: float | None


def measures(
    path: str | os.PathLike, shown: Sequence[Panel], name: str, linear_below: float | None = None
) -> None:
    """A measure during training, with one panel per problem: means as lines, one standard deviation
    as bands.

    **Arguments:**

    - `name`: the name of the measure.
    - `linear_below`: the axis is linear below this value, for estimates that may be 0 or negative.
    """
    figure, axes = panels(1, len(shown), 3.5)
    for axis, panel in zip(axes[0], shown, strict=True):
        for curve in panel.curves:
            _curve(axis, curve)
        if panel.floor is not None:
            axis.axhline(
                panel.floor, color="black", linewidth=1, linestyle=":", label="truth against itself"
            )
        _scale(axis, panel, linear_below)
        axis.set(xlabel="steps")
        _thousands(axis)
        dress(axis, panel.title)
    axes[0, 0].set_ylabel(name)
    legend(figure, axes[0], 4)
    save(figure, path)


def _scale(axis: Any, panel: Panel, linear_below: float | None) -> None:
    """The axis ends at the lowest mean or the floor, because a band over a few runs may reach far
    lower."""
    lowest = min(float(np.min(curve.mean)) for curve in panel.curves)
    lowest = lowest if panel.floor is None else min(lowest, panel.floor)
    if linear_below is None:
        plain_logs(axis)
        axis.set_ylim(bottom=0.8 * lowest)
    else:
        axis.set_yscale("symlog", linthresh=linear_below, linscale=0.4)
        axis.set_ylim(bottom=min(0.0, lowest) - 0.4 * linear_below)


def _curve(axis: Any, curve: Curve) -> None:
    style = {
        "color": colour(curve.method),
        "marker": marker(curve.method),
        "markersize": 4,
        "linewidth": 1.4,
    }
    axis.plot(curve.steps, curve.mean, label=label(curve.method), **style)
    low, high = curve.mean - curve.sd, curve.mean + curve.sd
    axis.fill_between(curve.steps, low, high, color=colour(curve.method), alpha=0.13, linewidth=0)


def losses(
    path: str | os.PathLike, rows: Sequence[tuple[str, Sequence[tuple[str, int, np.ndarray]]]]
) -> None:
    """Training losses, with one line per run.

    **Arguments:**

    - `rows`: a title, and for each method its name, the number of steps, and the losses of its
        runs.
    """
    figure, _ = method_grid(rows, 2.1, _losses)
    figure.supxlabel("steps", fontsize=10)
    save(figure, path)


def _losses(axis: Any, method: str, num_steps: int, runs: np.ndarray) -> None:
    steps = (np.arange(runs.shape[1]) + 0.5) * num_steps / max(1, runs.shape[1])
    for run in runs:
        axis.plot(steps, run, color=colour(method), linewidth=0.7, alpha=0.8)
    _loss_scale(axis, runs[np.isfinite(runs)])
    axis.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.5)
    _thousands(axis)


def _loss_scale(axis: Any, finite: np.ndarray) -> None:
    """A logarithmic axis if losses fall by more than a factor of 30, which a linear axis would not
    show."""
    from matplotlib.ticker import NullFormatter, NullLocator

    if not len(finite) or finite.max() < 30 * np.abs(finite).min():
        return
    if finite.min() > 0:
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(NullFormatter())
        return
    first, last = (
        int(np.ceil(np.log10(max(1e-3, value)))) for value in (-finite.min(), finite.max())
    )
    axis.set_yscale("symlog", linthresh=10.0**first, linscale=0.4)
    axis.set_yticks([0, *(10.0**k for k in range(first, last + 1))])
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(1.5 * min(finite.min(), -(10.0 ** (first - 1))), 1.5 * finite.max())


def _thousands(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x / 1_000:g}k" if x >= 1_000 else f"{x:g}")
    )
