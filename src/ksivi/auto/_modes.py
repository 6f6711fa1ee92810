"""Separate modes: which ends of paths the density does not connect, and their shares of the mass."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._core.compile import one_shot
from ..targets import Target
from ._anneal import Annealed
from ._gaussians import LEAST_MASS, Gaussians
from ._names import coordinate_names

Points = Float[np.ndarray, "n d"]

_MIN_DIP = 2.0
"""Two points are separate if log p falls by more between them, in nats."""
_ON_SEGMENT = 15
_LOWEST = 50.0
"""An end whose log density is this far below the highest is no mode of the posterior."""
_MOST_MODES = 8
_FEWEST = 0.25
"""A mode is missed if its share of the draws is less than this part of its share of the mass."""


class Blobs(NamedTuple):
    """Shares, means and lower triangular roots of the covariances of the modes that hold mass."""

    shares: Float[Array, " m"]
    centres: Float[Array, "m d"]
    roots: Float[Array, "m d d"]


class Modes(NamedTuple):
    """Separate modes that hold mass: their places, and particles of the target with their modes.

    The label of a particle that belongs to none of them is −1.
    """

    places: Points
    particles: Points
    labels: Int[np.ndarray, " n"]

    @property
    def shares(self) -> Float[np.ndarray, " k"]:
        return self._shares(self.labels)

    def shares_of(
        self, draws: Points, weights: Float[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, " k"]:
        """The shares of other draws, by the nearest particle of each draw."""
        from scipy.spatial import cKDTree  # SciPy takes longer to import than this library

        sd = np.maximum(self.particles.std(axis=0), 1e-30)
        _, nearest = cKDTree(self.particles / sd).query(draws / sd)
        return self._shares(self.labels[nearest], weights)

    def blobs(self, particles: Float[Array, "n d"]) -> Blobs | None:
        """The modes in other coordinates, from the same particles there; None if it is one mode."""
        if len(self.places) < 2:
            return None
        x = np.asarray(particles, np.float64)
        groups = [x[self.labels == k] for k in range(len(self.places))]
        centres, roots = [g.mean(axis=0) for g in groups], [root_of(g) for g in groups]
        parts = self.shares, np.stack(centres), np.stack(roots)
        return Blobs(*(jnp.asarray(part, particles.dtype) for part in parts))

    def _shares(
        self, labels: Int[np.ndarray, " m"], weights: Float[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, " k"]:
        # The label −1 is counted first, and left out.
        counts = np.bincount(labels + 1, weights, minlength=len(self.places) + 1)
        return counts[1:] / np.sum(counts)


def root_of(draws: Points) -> Float[np.ndarray, "d d"]:
    """The lower triangular root of the covariance of draws, with a trace of independence."""
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    return np.linalg.cholesky(covariance + 1e-6 * np.diag(np.diag(covariance)))


def separate(target: Target, points: Points) -> Points:
    """The points that are separate modes, highest first: log p falls between any two of them."""
    heights = np.asarray(_heights(target, points), np.float64)
    usable = np.isfinite(heights) & np.isfinite(points).all(axis=1)
    usable &= heights > np.max(heights, initial=-np.inf, where=usable) - _LOWEST
    dips = np.asarray(_dips(target, points, points), np.float64)
    kept: list[int] = []
    for i in np.argsort(-np.where(usable, heights, -np.inf)):
        if usable[i] and all(dips[i, k] > _MIN_DIP for k in kept):
            kept.append(int(i))
    return points[kept[:_MOST_MODES]]


def modes_of(target: Target, places: Points, gaussians: Gaussians, annealed: Annealed) -> Modes:
    """The modes that hold mass. A Gaussian belongs to the mode with the smallest dip between."""
    dips = np.asarray(_dips(target, np.asarray(gaussians.means, np.float64), places))
    nearest = np.argmin(np.where(np.isnan(dips), np.inf, dips), axis=1)
    labels = nearest[annealed.origins]
    kept = np.bincount(labels, minlength=len(places)) >= LEAST_MASS * len(labels)
    renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
    return Modes(places[kept], annealed.draws, renumbered[labels])


def misses_modes(draws: Points, modes: Modes | None, target: Target) -> str | None:
    """Doubts if a mode holds much mass, by its particles, but too few draws."""
    if modes is None or len(modes.places) < 2:
        return None
    expected, found = modes.shares, modes.shares_of(draws)
    for place, mass, share in zip(modes.places, expected, found, strict=True):
        if share < _FEWEST * mass:
            return (
                f"a mode with about {mass:.0%} of the mass holds {share:.1%} of the draws: "
                f"near {named(target, place)}"
            )
    return None


def named(target: Target, point: Float[np.ndarray, " d"]) -> str:
    """The first coordinates of a point, by name."""
    names = coordinate_names(target)
    pairs = [f"{name} = {value:.3g}" for name, value in zip(names, point, strict=True)]
    return ", ".join(pairs[:4]) + (", …" if len(pairs) > 4 else "")


@one_shot
def _heights(target: Target, points: Points) -> Float[Array, " n"]:
    return jax.vmap(target.log_density)(jnp.asarray(points, jnp.result_type(float)))


@one_shot
def _dips(target: Target, points: Points, places: Points) -> Float[Array, "n k"]:
    """How far log p falls below the lower end, on the straight line from each point to each place."""
    shares = jnp.linspace(0, 1, _ON_SEGMENT + 2)
    starts, ends = (jnp.asarray(part, jnp.result_type(float)) for part in (points, places))

    def dip(a: Float[Array, " d"], b: Float[Array, " d"]) -> Float[Array, ""]:
        line = a[None] + shares[:, None] * (b - a)[None]
        heights = jax.vmap(target.log_density)(line)
        heights = jnp.where(jnp.isnan(heights), -jnp.inf, heights)
        return jnp.minimum(heights[0], heights[-1]) - jnp.min(heights)

    return jax.vmap(lambda a: jax.vmap(lambda b: dip(a, b))(ends))(starts)
