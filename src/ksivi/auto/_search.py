"""Searches for modes from many starts."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._core.hmc import Evaluate
from ._paths import Places, lbfgs, places, rounding, rprop
from ._rows import put, rows

Points = Float[np.ndarray, "m d"]
Values = Float[np.ndarray, " m"]

_NARROW, _WIDE, _HALVINGS = 0.2, 2.0, 10
_SAME_HEIGHT = 1e-2
"""Ends of paths are the same only if their log densities differ by less, in nats."""
_BETWEEN = (0.236, 0.382, 0.5)
"""Parts of the way between two ends at which log p is compared. They have no common measure, or
modes at equal distances could all be met."""


class Found(NamedTuple):
    """The best point of each path, its log density, and an early point of the path.

    The mode of a hierarchical model can lie at the edge, with no mass around it. Early points of a
    path can be nearer to the mass.
    """

    points: Points
    log_densities: Values
    early: Points


def first_starts(rng: np.random.Generator, num: int, dim: int) -> Points:
    """Normal draws of several widths around the origin.

    Parameters on an unconstrained scale are rarely large.
    """
    return np.linspace(_NARROW, _WIDE, num)[:, None] * rng.standard_normal((num, dim))


def search(
    evaluate: Evaluate,
    starts: Points,
    num_signs: int = 100,
    num_steps: int = 300,
    num_early: int = 8,
) -> Found:
    """Runs L-BFGS on −log p from every start and after Rprop, and keeps the better of the two ends.

    Rprop uses only the signs of the gradient, with one step size per coordinate. So it handles
    scales that differ by any factor, and walls too steep for a line search. L-BFGS handles
    correlations. A start where log p is not finite is first moved towards the origin. A path takes
    at most `num_signs` steps of Rprop and `num_steps` of L-BFGS, and stops before if it converges.
    """
    num = len(starts)
    with np.errstate(all="ignore"):  # away from the mass, log p and its gradient can be anything
        first = _where_finite(evaluate, starts)
        after_signs = rprop(evaluate, first, num_signs)
        both = Places(*(np.concatenate(pair) for pair in zip(after_signs, first, strict=True)))
        ends, early = lbfgs(evaluate, both, num_steps, num_early)
    after, alone = rows(ends, np.arange(num)), rows(ends, np.arange(num, 2 * num))
    best = after.or_lower(alone)
    return Found(best.x, -best.losses, early[num:])


def _where_finite(evaluate: Evaluate, starts: Points) -> Places:
    """The starts, or the first of their halvings towards the origin at which log p is finite."""
    first = places(evaluate, starts.astype(np.float64))
    for share in [*0.5 ** np.arange(1, _HALVINGS), 0.0]:
        lost = np.flatnonzero(np.isinf(first.losses))
        if len(lost):
            put(first, lost, places(evaluate, share * starts[lost]))
    return first


def distinct(points: Points, log_densities: Values, evaluate: Evaluate) -> Int[np.ndarray, " k"]:
    """The indices of the ends of paths that differ from each other, the highest first.

    Two ends are the same if log p is level from one to the other: nowhere lower than the higher end
    by more than a hundredth of a nat and rounding. So scales do not matter, and two modes of the
    same height differ by the valley between them. Ends where log p is not finite are left out.
    """
    left = [i for i in np.argsort(-log_densities) if np.isfinite(log_densities[i])]
    kept = []
    while left:
        highest, left = left[0], left[1:]
        kept.append(highest)
        level = log_densities[highest] - _SAME_HEIGHT - rounding(log_densities[highest])
        near = [i for i in left if log_densities[i] >= level]
        same = _is_above(evaluate, level, points[highest], points[near])
        left = [i for i in left if i not in {*np.array(near, int)[same]}]
    return np.array(kept, int)


def _is_above(
    evaluate: Evaluate, level: float, end: Float[np.ndarray, " d"], others: Points
) -> Bool[np.ndarray, " m"]:
    """Whether log p is above a level between an end and each of the others."""
    parts = np.array(_BETWEEN)[:, None, None]
    between = (1 - parts) * end + parts * others[None]
    with np.errstate(all="ignore"):
        heights, _ = evaluate(between.reshape(-1, len(end)))
    return np.all(heights.reshape(len(_BETWEEN), -1) >= level, axis=0)
