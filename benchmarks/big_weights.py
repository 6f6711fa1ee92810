"""Proposals of a few variables whose log density is costly, and resampling by importance weights."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.interpolate import Akima1DInterpolator
from scipy.optimize import minimize

from .development.base import NUM_TRUTH

Draws = Float[np.ndarray, "n d"]
LogDensity = Callable[[Draws], Float[np.ndarray, " n"]]
"""Log densities at many points, up to one constant."""

_LEAST_ESS = 0.9
_MOST_NUMBERS, _FEWEST = 8_000_000, 4_000
"""A truth in many dimensions has fewer draws, for the sake of memory, but not fewer than so many."""
_DEEP, _FAR = 14.0, 100
"""A box ends where the density along an axis has fallen by so many nats, after so many widths at most."""
_LOWEST = 30.0
"""Lower values, in nats below the highest, do not matter. Splines through them would overshoot nearby."""
_FEW, _MANY, _FINE = 15, 41, 121
"""An axis has a node for each width, within these limits, and cells that splines refine."""


def number_of_draws(dim: int) -> int:
    return min(NUM_TRUTH, max(_MOST_NUMBERS // dim, _FEWEST))


class Peak(NamedTuple):
    """The mode of a density, and a root of its covariance by the curvature there."""

    mode: Float[np.ndarray, " d"]
    root: Float[np.ndarray, "d d"]


def peak(log_f: LogDensity, start: Float[np.ndarray, " d"], steps: Float[np.ndarray, " d"]) -> Peak:
    """Finds the mode by the Nelder–Mead method.

    **Arguments:**

    - `steps`: a guess of the widths, for the first simplex and for differences.
    """
    simplex = start + np.concatenate([np.zeros((1, len(start))), np.diag(steps)])
    options = {"initial_simplex": simplex, "fatol": 1e-5, "xatol": 1e-4}
    found = minimize(lambda x: -log_f(x[None])[0], start, method="Nelder-Mead", options=options)
    scaled = lambda v: log_f(found.x + v * steps)  # noqa: E731
    hessian = curvature(scaled, np.zeros(len(start)), 0.3)
    root = np.linalg.cholesky(np.linalg.inv(-hessian))
    return Peak(found.x, steps[:, None] * root)


def curvature(log_f: LogDensity, x: Float[np.ndarray, " d"], h: float) -> Float[np.ndarray, "d d"]:
    """The Hessian by central differences, all in one call."""
    dim, e = len(x), h * np.eye(len(x))
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    at = [x + s * e[i] + t * e[j] for i in range(dim) for j in range(dim) for s, t in signs]
    values = log_f(np.array(at)).reshape(dim, dim, 4)
    return values @ np.array([1, -1, -1, 1]) / (4 * h**2)


def ess_share(log_weight: np.ndarray) -> float:
    """The effective sample size of importance weights, as a share of the draws."""
    weight = np.exp(log_weight - log_weight.max())
    return float(weight.mean() ** 2 / np.mean(weight**2))


def resampled(rng: np.random.Generator, draws: Draws, log_weight: np.ndarray) -> Draws:
    """Systematic resampling, which takes hardly any draw twice where weights are nearly equal."""
    share = ess_share(log_weight)
    print(f"ESS share {share:.4f} of {len(draws)} draws: resampled", flush=True)
    if not share > _LEAST_ESS:
        raise RuntimeError(f"the ESS share of the weights is {share:.3f}, below {_LEAST_ESS}")
    weight = np.exp(log_weight - log_weight.max())
    places = (np.arange(len(draws)) + rng.uniform()) / len(draws) * weight.sum()
    chosen = np.searchsorted(np.cumsum(weight), places).clip(max=len(draws) - 1)
    return draws[rng.permutation(chosen)]


def proposed_in_box(
    rng: np.random.Generator, log_f: LogDensity, at: Peak, n: int
) -> tuple[Draws, Float[np.ndarray, " n"]]:
    """Draws of a density in two or three dimensions, and the log density that proposed them.

    The log density is known on a coarse grid along the axes of the curvature. Splines refine it to cells, and a draw
    is uniform in its cell: so the density that proposes is known exactly, and weights can correct it.
    """
    lines = [
        np.linspace(low, high, int(np.clip(high - low, _FEW, _MANY)))
        for low, high in _box(log_f, at)
    ]
    points = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)
    values = log_f(at.mode + points.reshape(-1, len(lines)) @ at.root.T).reshape(points.shape[:-1])
    fine = [np.linspace(line[0], line[-1], _FINE) for line in lines]
    _check_faces(values)
    values = np.maximum(values, values.max() - _LOWEST)
    for axis, line in enumerate(lines):
        values = Akima1DInterpolator(line, values, axis=axis, method="makima")(fine[axis])
    weight = np.exp(values - values.max()).ravel()
    cell = rng.choice(len(weight), size=n, p=weight / weight.sum())
    indices = np.unravel_index(cell, values.shape)
    away = [
        line[i] + (line[1] - line[0]) * rng.uniform(-0.5, 0.5, size=n)
        for line, i in zip(fine, indices, strict=True)
    ]
    return at.mode + np.stack(away, axis=1) @ at.root.T, values.ravel()[cell]


def _box(log_f: LogDensity, at: Peak) -> Float[np.ndarray, "d 2"]:
    """How many widths to go from the mode along each axis, to both sides."""
    lowest = log_f(at.mode[None])[0] - _DEEP
    limits = np.array([-3.0, 3.0]) * np.ones((len(at.mode), 1))
    open_ends = np.full(limits.shape, True)
    while np.abs(limits).max() < _FAR:
        axis, side = np.nonzero(open_ends)
        points = at.mode + limits[axis, side, None] * at.root.T[axis]
        open_ends[axis, side] = log_f(points) > lowest
        if not open_ends.any():
            return limits
        limits *= np.where(open_ends, 1.25, 1.0)
    raise RuntimeError(f"the density of the hyperparameters has not vanished after {_FAR} widths")


def _check_faces(values: np.ndarray) -> None:
    faces = [np.moveaxis(values, axis, 0)[[0, -1]].max() for axis in range(values.ndim)]
    if max(faces) > values.max() - 7:
        raise RuntimeError("the grid of the hyperparameters is too small")
