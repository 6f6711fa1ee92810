"""Figures of two-dimensional draws, and helpers that all figures share."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..targets import Target

_INK, _GRID = "#1a1a1a", 200
_SESSION = ("backend", "backend_fallback", "interactive", "toolbar")
"""Settings of matplotlib that belong to the session and not to a figure."""


@contextlib.contextmanager
def own_style(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Figures inside start from matplotlib's own defaults.

    A `matplotlibrc` in the current folder does not change them. It is also a decorator.

    **Arguments:**

    - `changes`: settings that differ from the defaults.
    """
    matplotlib = _matplotlib()
    defaults = matplotlib.rcParamsDefault
    plain = {key: defaults[key] for key in defaults if key not in _SESSION}
    with matplotlib.rc_context({**plain, **(changes or {})}):
        yield


@own_style()
def draws_and_contours(
    path: str | os.PathLike, panels: Sequence[tuple[str, Target, np.ndarray, np.ndarray]]
) -> None:
    """One panel per problem: the density of the draws in blue, contours of the target in black.

    **Arguments:**

    - `path`: the output file. Its suffix decides the format.
    - `panels`: the title, target, draws and exact draws of each panel. The exact draws fix the
        frame.
    """
    figure = new_figure(figsize=(3.6 * len(panels), 3.7))
    axes = figure.subplots(1, len(panels), squeeze=False)
    for axis, (title, target, draws, truth) in zip(axes[0], panels, strict=True):
        low, high = frame(truth)
        axis.hist2d(
            draws[:, 0],
            draws[:, 1],
            bins=120,
            range=list(zip(low, high, strict=True)),
            cmap="Blues",
            density=True,
        )
        contours(axis, target, low, high)
        dress(axis, title)
    figure.supxlabel(
        "draws in blue; contours of the target hold 20, 40, 60, 80 and 95% of its mass", fontsize=9
    )
    figure.savefig(path, dpi=150)


def contours(axis: Any, target: Target, low: np.ndarray, high: np.ndarray) -> None:
    """Contours of a two-dimensional target that contain 20, 40, 60, 80 and 95% of its mass."""
    x, y, density = _density(target, low, high)
    levels = mass_levels(density, (0.95, 0.8, 0.6, 0.4, 0.2))
    axis.contour(x, y, density, levels=levels, colors=_INK, linewidths=0.8, alpha=0.8)


def dress(axis: Any, title: str) -> None:
    """Adds a title, makes the ticks small, and removes the box."""
    axis.set_title(title, fontsize=11)
    axis.tick_params(labelsize=8, length=2)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def frame(truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a box that contains the draws except their extreme outliers."""
    low, high = np.quantile(truth, [0.002, 0.998], axis=0)
    margin = 0.15 * (high - low)
    return low - margin, high + margin


def _density(
    target: Target, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = (np.linspace(a, b, _GRID) for a, b in zip(low, high, strict=True))
    points = jnp.stack(jnp.meshgrid(jnp.asarray(x, float), jnp.asarray(y, float)), axis=-1).reshape(
        -1, 2
    )
    log_density = np.asarray(jax.jit(jax.vmap(target.log_density))(points), np.float64)
    return x, y, np.exp(log_density - log_density.max()).reshape(_GRID, _GRID)


def mass_levels(density: np.ndarray, masses: Sequence[float]) -> list[float]:
    """The heights whose superlevel sets contain the given shares of the mass."""
    heights = np.sort(density.ravel())[::-1]
    shares = np.cumsum(heights) / heights.sum()
    return [float(heights[np.searchsorted(shares, mass)]) for mass in masses]


def new_figure(**options):
    """A figure without pyplot, so that a notebook's backend is not changed."""
    return _matplotlib().figure.Figure(layout="constrained", **options)


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'ksivi[plot]'") from error
    return matplotlib
