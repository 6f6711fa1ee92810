"""Where a fit is wrong: the witness function over two coordinates."""

import os
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key
from ..diagnostics import witness
from ..results import Posterior
from ..targets import Target
from ._figures import dress, frame, new_figure, own_style
from ._style import FAINT, save

_CELLS = 14
_FEWEST = 5
"""The fewest draws in a cell with an arrow."""
_WRONG = "#c03a2b"
_TINY = 1e-30


def witness_arrows(
    path: str | os.PathLike,
    key: PRNGKeyArray,
    target: Target,
    posterior: Posterior,
    *,
    coordinates: Sequence[int] = (0, 1),
    num_samples: int = 2_000,
) -> None:
    r"""A figure of draws over two coordinates.

    Red arrows show where the draws should move, by the witness function f*.

    The length of an arrow is `Witness.shift`, so that the arrows of a good fit are dots. Each arrow
    is the mean over the draws in a cell. f* is estimated twice, from independent draws. If the two
    estimates differ, the arrow is faint.

    **Arguments:**

    - `path`: the output file. Its suffix decides the format.
    - `coordinates`: the indices of the two coordinates in the flat vector.
    - `num_samples`: the number of draws in the figure and in each estimate.

    ```python
    ksivi.report.witness_arrows("witness.png", jax.random.key(5), target, fit.posterior)
    ```
    """
    pair = _as_pair(coordinates, posterior.dim)
    draw_key, *keys = jax.random.split(as_single_key(key), 3)
    draws = posterior.sample(draw_key, as_count(num_samples, "num_samples", minimum=1_000))
    found = [witness(k, target, posterior, num_samples=num_samples).shift(draws) for k in keys]
    first, second = (np.asarray(shift, np.float64)[:, pair] for shift in found)
    shown = np.asarray(draws, np.float64)[:, pair]
    _draw(path, shown, *_by_cell(shown, first, second), [f"coordinate {i}" for i in pair])


def _as_pair(coordinates: Sequence[int], dim: int) -> list[int]:
    pair = [int(i) for i in coordinates]
    if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= i < dim for i in pair):
        expected = f"two different indices from 0 to {dim - 1}"
        raise ValueError(f"coordinates must be {expected}, got {tuple(coordinates)}")
    return pair


def _by_cell(
    points: Float[np.ndarray, "n 2"],
    first: Float[np.ndarray, "n 2"],
    second: Float[np.ndarray, "n 2"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, mean arrow and its certainty (0 to 1) of each cell with enough draws."""
    low, high = frame(points)
    cell = np.floor(_CELLS * (points - low) / (high - low)).astype(int)
    index = np.where(((cell >= 0) & (cell < _CELLS)).all(axis=1), cell @ [1, _CELLS], -1)
    kept = [i for i in np.unique(index) if i >= 0 and np.sum(index == i) >= _FEWEST]
    mean = lambda values: np.array([values[index == i].mean(axis=0) for i in kept])  # noqa: E731
    arrows, noise = mean((first + second) / 2), mean(np.abs(first - second) / 2)
    size, spread = np.linalg.norm(arrows, axis=1), np.linalg.norm(noise, axis=1)
    return mean(points), arrows, size**2 / np.maximum(size**2 + spread**2, _TINY)


@own_style()
def _draw(path, points, centres, arrows, certainty, names) -> None:
    figure = new_figure(figsize=(5.6, 5.2))
    axis = figure.subplots()
    low, high = frame(points)
    axis.scatter(*points.T, s=4, color=FAINT, alpha=0.35, linewidths=0)
    axis.quiver(
        *centres.T,
        *arrows.T,
        color=_WRONG,
        alpha=certainty,
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.004,
    )
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axis.set_xlabel(names[0], fontsize=9)
    axis.set_ylabel(names[1], fontsize=9)
    dress(axis, "where draws should move")
    figure.supxlabel(
        "draws in grey; arrows by the witness f* show how far draws should move, faint if uncertain",
        fontsize=8,
    )
    save(figure, path)
