"""Whether the posterior is proper: how fast its mass falls far out."""

import numpy as np
from jaxtyping import Bool, Float, Int

from ..targets import Evaluator, Target
from ._names import coordinate_names
from ._walks import first_walks, rounded, walk

_DISTANCES = 2.0 ** np.array([*np.arange(0, 4.1, 0.5), 6, 8, 12, 16, 20, 24])
"""In interquartile ranges. They are close together at first, because scales soon underflow."""
_NEAREST_END, _PRACTICALLY_INFINITE = 2.8, 1e6
_OTHER_SCALE = 1.3
_NUM_COORDINATES, _MOST_DIM = 12, 50
_LARGEST_LOG = 80.0
"""Beyond it, the exponential of a coordinate overflows, or a library cuts it off."""
_MARGIN, _LAST_MARGIN = 0.05, 0.5
"""Margins for rounding, in the exponent of a tail: over two distances, and over the last one."""
_NEGLIGIBLE = 2 * np.log(1e4)
"""Nats below the centre. Along a straight line, the density may rise again from there."""


def is_improper(
    evaluate: Evaluator, draws: Float[np.ndarray, "n d"], axes: Float[np.ndarray, "d d"]
) -> str | None:
    """Doubts if the mass falls no faster than 1/r along a coordinate or a principal axis."""
    found = improper_around(evaluate, draws)
    if found is not None:
        return found
    low, centre, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    turned = np.linalg.inv(axes) * np.std(draws @ axes, axis=0)[:, None]
    steps = np.concatenate([np.diag(high - low), turned])
    steps = np.concatenate([steps, -steps])
    flat = _is_flat_along(evaluate, centre, steps)
    return _in_words(evaluate.target, steps[np.argmax(flat)]) if flat.any() else None


def improper_around(evaluate: Evaluator, draws: Float[np.ndarray, "n d"]) -> str | None:
    """Doubts if the mass falls no faster than 1/r as a coordinate leaves the draws."""
    low, centre, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    return _improper_coordinate(evaluate, centre, high - low)


def improper_from(evaluate: Evaluator, early: Float[np.ndarray, "n d"]) -> str | None:
    """Doubts if the mass falls no faster than 1/r as a coordinate leaves one of these points.

    No width is known there, so the unit of length is 1.
    """
    doubts = (_improper_coordinate(evaluate, point, np.ones(evaluate.dim)) for point in early)
    return next((doubt for doubt in doubts if doubt), None)


def _improper_coordinate(
    evaluate: Evaluator, centre: Float[np.ndarray, " d"], scales: Float[np.ndarray, " d"]
) -> str | None:
    r"""Doubts if the mass falls no faster than 1/r as one coordinate goes to ±∞.

    The other coordinates follow, so that curves are found too. At each distance r they move to the
    largest density, and Laplace's approximation gives the mass around it:

        log m(r) = log p(x(r)) − ½ log det(−H(r)),   H the Hessian in the other coordinates

    An integral of m is finite only if m falls faster than 1/r.
    """
    if not 1 < evaluate.dim <= _MOST_DIM:
        return None
    chosen = _simplest(evaluate.target)
    flat = _is_flat_from(evaluate, centre, scales, chosen)
    if flat.any():  # confirmed by a walk through other points
        again = np.unique(np.flatnonzero(flat) % len(chosen))
        both = np.append(again, again + len(chosen))
        flat[both] &= _is_flat_from(evaluate, centre, _OTHER_SCALE * scales, chosen[again])
    if not flat.any():
        return None
    first = int(np.argmax(flat))
    direction = np.zeros(evaluate.dim)
    direction[chosen[first % len(chosen)]] = 1 if first < len(chosen) else -1
    return _in_words(evaluate.target, direction)


def _simplest(target: Target) -> Int[np.ndarray, " k"]:
    """Up to 12 coordinates: those of the smallest parameters, which are often scales."""
    sizes = np.concatenate([np.full(_size(shape), _size(shape)) for _, shape in target.layout])
    return np.argsort(sizes, kind="stable")[:_NUM_COORDINATES]


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


def _is_flat_from(
    evaluate: Evaluator,
    centre: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    chosen: Int[np.ndarray, " k"],
) -> Bool[np.ndarray, " k2"]:
    """Whether the mass falls too slowly as each chosen coordinate grows, and as each falls."""
    both, signs = np.tile(chosen, 2), np.repeat([1.0, -1.0], len(chosen))[:, None]
    scales = np.maximum(scales, 1e-30)
    reached = rounded(centre[both, None] + signs * scales[both, None] * np.append(0, _DISTANCES))
    possible = _is_representable(evaluate.target, reached, both)
    with np.errstate(all="ignore"):
        return _is_flat(*walk(evaluate, first_walks(centre, scales, both), reached, possible))


def _is_representable(
    target: Target, reached: Float[np.ndarray, "k2 l"], coordinates: Int[np.ndarray, " k2"]
) -> Bool[np.ndarray, "k2 l"]:
    """Whether a constrained coordinate has not left the range of its transformation."""
    real = np.concatenate(
        [
            np.full(_size(shape), target.supports is None or target.supports[i].kind == "real")
            for i, (_, shape) in enumerate(target.layout)
        ]
    )
    return real[coordinates, None] | (np.abs(reached) < _LARGEST_LOG)


def _is_flat(
    log_mass: Float[np.ndarray, "k l"], is_sure: Bool[np.ndarray, "k l"]
) -> Bool[np.ndarray, " k"]:
    """Whether the mass falls no faster than 1/r at the last distance that can be believed.

    A walk counts only if it can be believed from its start on.
    """
    distances, flat = np.append(0, _DISTANCES), np.zeros(len(log_mass), bool)
    for i, (mass, sure) in enumerate(zip(log_mass, is_sure, strict=True)):
        last = int(np.argmin(np.append(sure, False))) - 1
        # The last one may have lost its digits already, so the one before counts as well.
        for end in (last, last - 1):
            if end < 3 or distances[end] < _NEAREST_END:
                continue
            slope, last_slope = (
                (mass[end] - mass[k]) / np.log(distances[end] / distances[k])
                for k in (end - 2, end - 1)
            )
            is_counted = mass[end] > np.max(mass[: end + 1]) - _NEGLIGIBLE
            is_counted |= distances[end] > _PRACTICALLY_INFINITE
            # A walk that has just come to another mode rises, and falls again.
            flat[i] |= is_counted and slope >= -1 - _MARGIN and last_slope >= -1 - _LAST_MARGIN
    return flat


def _is_flat_along(
    evaluate: Evaluator, centre: Float[np.ndarray, " d"], steps: Float[np.ndarray, "n d"]
) -> Bool[np.ndarray, " n"]:
    """Whether the density falls no faster than 1/r along straight lines."""
    lines = [centre + r * steps for r in (1e2, 1e4)]
    log_p = evaluate.log_density(np.concatenate([centre[None], *lines]))
    middle, (near, far) = log_p[0], np.split(log_p[1:], 2)
    fine = np.isfinite(near) & np.isfinite(far) & (far > middle - _NEGLIGIBLE)
    slopes = np.full(len(near), -np.inf)
    slopes[fine] = (far[fine] - near[fine]) / np.log(1e2)
    return slopes >= -1 - _MARGIN


def _in_words(target: Target, direction: Float[np.ndarray, " d"]) -> str:
    names = coordinate_names(target)
    share = np.abs(direction) / np.max(np.abs(direction))
    strongest = [int(i) for i in np.argsort(-share) if share[i] > 0.3][:3]
    moves = [f"{names[i]} {'grows' if direction[i] > 0 else 'falls'}" for i in strongest]
    scale = "" if target.supports is None else ", on the unconstrained scale"
    return (
        "the posterior may be improper: its mass falls too slowly to be finite as "
        f"{' and '.join(moves)}{scale}. A proper prior there would help"
    )
