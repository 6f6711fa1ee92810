"""Hamiltonian Monte Carlo for many chains at once, on the host around an evaluator of a target."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Points = Float[np.ndarray, "n d"]
Numbers = Float[np.ndarray, " n"]
Evaluate = Callable[[Points], tuple[Numbers, Points]]
"""Log densities and scores of points."""

_LEAPFROG = 8
_JITTER = (-1.5, 0.3)
"""Bounds of the log of the factor of a step size."""


class Place(NamedTuple):
    """A point for each chain, log density and score there, and anything else computed there.

    `extra` is None, or an array or a tuple of arrays with one row per chain.
    """

    x: Points
    value: Numbers
    score: Points
    extra: Any = None

    def times(self, beta: Numbers) -> "Place":
        """The place for the density p^β, with one β per chain."""
        return self._replace(value=beta * self.value, score=beta[:, None] * self.score)


def hmc_transition(
    rng: np.random.Generator,
    evaluate: Callable[[Points], Place],
    place: Place,
    step: float | Numbers,
) -> tuple[Place, Numbers]:
    """The next place of every chain, and the probabilities with which proposals were accepted.

    **Arguments:**

    - `evaluate`: the place at one point for each chain.
    - `step`: step size, of all chains or of each. It is jittered, so that some chains take small
        steps into narrow regions.
    """
    p = rng.standard_normal(place.x.shape)
    steps = step * np.exp(rng.uniform(*_JITTER, len(p)))
    with np.errstate(all="ignore"):  # a path may leave all numbers behind, and is then refused
        new, momentum = _leapfrog(evaluate, place, p, steps[:, None])
        gain = new.value - place.value - 0.5 * (np.sum(momentum**2, 1) - np.sum(p**2, 1))
    # Where p is 0 the gain is +∞, and any finite point is accepted.
    is_finite = np.isfinite(new.value) & ~np.isnan(gain) & np.isfinite(new.x).all(axis=1)
    probability = np.exp(np.minimum(np.where(is_finite, gain, -np.inf), 0))
    return _chosen(rng.random(len(p)) < probability, new, place), probability


def _leapfrog(
    evaluate: Callable[[Points], Place], place: Place, p: Points, step: Float[np.ndarray, "n 1"]
) -> tuple[Place, Points]:
    for _ in range(_LEAPFROG):
        p = p + 0.5 * step * place.score
        place = evaluate(place.x + step * p)
        p = p + 0.5 * step * place.score
    return place, p


def _chosen(accept: Bool[np.ndarray, " n"], new: Any, old: Any) -> Any:
    """The rows of the new arrays where they are accepted, else those of the old ones."""
    if new is None:
        return None
    if isinstance(new, np.ndarray):
        return np.where(accept.reshape(-1, *[1] * (new.ndim - 1)), new, old)
    parts = (_chosen(accept, a, b) for a, b in zip(new, old, strict=True))
    return Place(*parts) if isinstance(new, Place) else tuple(parts)


def where_finite(evaluate: Evaluate, points: Points) -> tuple[Numbers, Points]:
    """Log densities and scores. Points that are not finite are not evaluated, and give NaN."""
    is_finite = np.isfinite(points).all(axis=1)
    if is_finite.all():
        return evaluate(points)
    log_densities, scores = np.full(len(points), np.nan), np.full(points.shape, np.nan)
    log_densities[is_finite], scores[is_finite] = evaluate(points[is_finite])
    return log_densities, scores
