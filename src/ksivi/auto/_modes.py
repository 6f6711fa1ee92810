"""Separate modes: which ends of paths the density does not connect, and their shares of the mass."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._core.mixtures import root_of
from .._core.wording import apart
from ..results import Code, Doubt
from ..targets import Evaluator, Target
from ._anneal import Annealed
from ._gaussians import LEAST_MASS
from ._names import coordinate_names

Points = Float[np.ndarray, "n d"]
Numbers = Float[np.ndarray, " n"]

_MIN_DIP = 2.0
"""Two points are separate if log p falls by more between them, in nats."""
_ON_SEGMENT = 15
_SAME_PLACE, _SAME_HEIGHT = 1e-3, 0.05
"""Ends of paths that are nearer are one point: in interquartile ranges of the ends, and in nats.
A path that ran far out does not make these ranges wider."""
_LOWEST = 50.0
"""An end whose log density is this far below the highest is no mode of the posterior."""
_MOST_MODES = 8
_FEWEST_DRAWS = 4
"""A mode with fewer draws per dimension has no covariance."""
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
        return self._shares(self._labels(draws), weights)

    def of(self, draws: Points) -> "Modes":
        """The same modes with other draws, each in the mode of its nearest particle."""
        return Modes(self.places, draws, self._labels(draws))

    def with_lost(self, draws: Points) -> Points:
        """The draws, and the particles of every mode of which they have too few."""
        counts = np.bincount(self._labels(draws) + 1, minlength=len(self.places) + 1)[1:]
        is_lost = np.append(counts < _FEWEST_DRAWS * draws.shape[1], False)  # the last is label −1
        return np.concatenate([draws, self.particles[is_lost[self.labels]]])

    def blobs(self, particles: Float[Array, "n d"]) -> Blobs | None:
        """The modes in other coordinates, from the same particles there; None if it is one mode."""
        if len(self.places) < 2:
            return None
        x = np.asarray(particles, np.float64)
        groups = [x[self.labels == k] for k in range(len(self.places))]
        centres, roots = [g.mean(axis=0) for g in groups], [root_of(g) for g in groups]
        parts = self.shares, np.stack(centres), np.stack(roots)
        return Blobs(*(jnp.asarray(part, particles.dtype) for part in parts))

    def _labels(self, draws: Points) -> Int[np.ndarray, " m"]:
        from scipy.spatial import cKDTree  # SciPy takes longer to import than this library

        sd = np.maximum(self.particles.std(axis=0), 1e-30)
        _, nearest = cKDTree(self.particles / sd).query(draws / sd)
        return self.labels[nearest]

    def _shares(
        self, labels: Int[np.ndarray, " m"], weights: Float[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, " k"]:
        # The label −1 is counted first, and left out.
        counts = np.bincount(labels + 1, weights, minlength=len(self.places) + 1)
        return counts[1:] / np.sum(counts)


def separate(evaluate: Evaluator, points: Points) -> Points:
    """The points that are separate modes, highest first: log p falls between any two of them."""
    points, heights = _usable(evaluate, points)
    kept: list[Float[np.ndarray, " d"]] = []
    while len(points) and len(kept) < _MOST_MODES:
        # The highest point that is separate from all before is a mode. Only points that are
        # separate from it remain, so a single mode costs one line to each of the others.
        highest, points, heights = points[0], points[1:], heights[1:]
        kept.append(highest)
        apart = _dips(evaluate, np.broadcast_to(highest, points.shape), points, heights) > _MIN_DIP
        points, heights = points[apart], heights[apart]
    return np.reshape(kept, (-1, evaluate.dim))


def are_separate(
    log_density: Callable[[Points], Numbers],
    one: Float[np.ndarray, " d"],
    other: Float[np.ndarray, " d"],
) -> bool:
    """Whether log p falls between two points, on the straight line from one to the other."""
    shares = np.arange(_ON_SEGMENT + 2) / (_ON_SEGMENT + 1)
    heights = log_density(one + shares[:, None] * (other - one))
    return not np.min(heights) > min(heights[0], heights[-1]) - _MIN_DIP


def _usable(evaluate: Evaluator, points: Points) -> tuple[Points, Numbers]:
    """The points that may be modes, each once, highest first, and their log densities."""
    points = points[np.isfinite(points).all(axis=1)]
    heights = evaluate.log_density(points)
    usable = np.isfinite(heights)
    usable &= heights > np.max(heights, initial=-np.inf, where=usable) - _LOWEST
    points, heights = points[usable], heights[usable]
    order = np.argsort(-heights, kind="stable")
    points, heights = points[order], heights[order]
    first = _is_first(points, heights)
    return points[first], heights[first]


def _is_first(points: Points, heights: Numbers) -> Bool[np.ndarray, " n"]:
    """Whether no point before is the same, nearly."""
    if not len(points):
        return np.zeros(0, bool)
    spread = np.subtract(*np.quantile(points, (0.75, 0.25), axis=0))
    same = np.abs(heights[:, None] - heights[None]) < _SAME_HEIGHT
    same &= np.all(np.abs(points[:, None] - points[None]) <= _SAME_PLACE * spread, axis=2)
    first = np.ones(len(points), bool)
    for i in range(len(points)):
        first[i] = not (same[i, :i] & first[:i]).any()
    return first


def modes_of(evaluate: Evaluator, places: Points, means: Points, annealed: Annealed) -> Modes:
    """The modes that hold mass. A Gaussian belongs to the mode with the smallest dip between.

    **Arguments:**

    - `means`: the means of the Gaussians from which the particles came.
    """
    nearest = np.zeros(len(means), int)
    if len(places) > 1:
        used = np.unique(annealed.origins)
        dips = _all_dips(evaluate, means[used], places)
        nearest[used] = np.argmin(np.where(np.isnan(dips), np.inf, dips), axis=1)
    labels = nearest[annealed.origins]
    kept = np.bincount(labels, minlength=len(places)) >= LEAST_MASS * len(labels)
    renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
    return Modes(places[kept], annealed.draws, renumbered[labels])


def misses_modes(draws: Points, modes: Modes | None, target: Target) -> Doubt | None:
    """Doubts if a mode holds much mass, by its particles, but too few draws."""
    if modes is None or len(modes.places) < 2:
        return None
    expected, found = modes.shares, modes.shares_of(draws)
    for place, mass, share in zip(modes.places, expected, found, strict=True):
        if share < _FEWEST * mass:
            held, least = apart(100 * share, 100 * _FEWEST * mass, digits=1)
            return Code.MISSED_MODE.doubt(
                f"a mode with about {mass:.0%} of the mass holds {held}% of the draws, at least "
                f"{least}% to be trusted: near {named(target, place)}"
            )
    return None


def named(target: Target, point: Float[np.ndarray, " d"]) -> str:
    """The first coordinates of a point, by name."""
    names = coordinate_names(target)
    pairs = [f"{name} = {value:.3g}" for name, value in zip(names, point, strict=True)]
    return ", ".join(pairs[:4]) + (", …" if len(pairs) > 4 else "")


def _all_dips(evaluate: Evaluator, points: Points, places: Points) -> Float[np.ndarray, "n k"]:
    """The dips between each point and each place. Between a point and itself there is none."""
    ends = np.concatenate([points, places])
    heights = evaluate.log_density(ends)
    heights = np.where(np.isnan(heights), -np.inf, heights)
    lower = np.minimum(heights[: len(points), None], heights[None, len(points) :])
    dips = np.zeros(lower.shape)
    apart = np.any(points[:, None] != places[None], axis=2)
    i, k = np.nonzero(apart)
    dips[apart] = _dips(evaluate, points[i], places[k], lower[apart])
    return dips


def _dips(evaluate: Evaluator, starts: Points, ends: Points, lower: Numbers) -> Numbers:
    """How far log p falls below the lower end, on the straight line from each start to its end."""
    shares = np.arange(1, _ON_SEGMENT + 1) / (_ON_SEGMENT + 1)
    lines = starts[:, None] + shares[:, None] * (ends - starts)[:, None]
    heights = evaluate.log_density(lines.reshape(-1, evaluate.dim)).reshape(len(lines), _ON_SEGMENT)
    lowest = np.min(np.where(np.isnan(heights), -np.inf, heights), axis=1)
    with np.errstate(invalid="ignore"):
        return lower - np.minimum(lower, lowest)
