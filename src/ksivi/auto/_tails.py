"""Whether the posterior is proper: how fast its mass falls far out."""

import numpy as np
from jaxtyping import Bool, Float, Int

from ..results import Code, Doubt
from ..targets import Evaluator, Target
from ._names import coordinate_names
from ._walks import Trace, first_walks, rounded, walk

_DISTANCES = 2.0 ** np.array([*np.arange(0, 4.1, 0.5), 6, 8, 12, 16, 20, 24])
"""In interquartile ranges. They are close together at first, because scales soon underflow."""
_NEAREST_END, _PRACTICALLY_INFINITE = 2.8, 1e6
_OTHER_SCALE = 1.3
_FEWEST, _MOST, _WIDTHS, _MOST_DIM = 4, 12, 160, 50
"""Between 4 and 12 coordinates go out. In many dimensions fewer do: each measures all widths."""
_MOST_EVALUATIONS = 4_000
"""After so many, there are no walks from a further early point."""
_MOST_LINES = 75
"""Straight lines go along so many first and last coordinates."""
_TINY = 1e-30
_LARGEST_LOG = 80.0
"""Beyond it, the exponential of a coordinate overflows, or a library cuts it off."""
_MARGIN, _LAST_MARGIN = 0.05, 0.5
"""Margins for rounding, in the exponent of a tail: over two distances, and over the last one."""
_CLIMB = 3.0
"""A walk that is lower than its highest point by more nats has not come to the mass yet."""
_NEGLIGIBLE = 2 * np.log(1e4)
"""Nats below the centre. Along a straight line, the density may rise again from there."""


def is_improper(
    evaluate: Evaluator, draws: Float[np.ndarray, "n d"], axes: Float[np.ndarray, "d k"]
) -> Doubt | None:
    """Doubts if the mass falls no faster than 1/r along a coordinate or a principal axis."""
    evaluate = evaluate.far
    found = improper_around(evaluate, draws)
    if found is not None:
        return found
    low, centre, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    steps = np.concatenate([_coordinates(high - low), _along(draws, axes)])
    steps = np.concatenate([steps, -steps])
    flat = _is_flat_along(evaluate, centre, steps)
    return _in_words(evaluate.target, steps[np.argmax(flat)]) if flat.any() else None


def _coordinates(widths: Float[np.ndarray, " d"]) -> Float[np.ndarray, "k d"]:
    """Steps along the coordinates; in many dimensions along the first and the last of them."""
    order = np.arange(len(widths))
    chosen = np.unique(np.concatenate([order[:_MOST_LINES], order[-_MOST_LINES:]]))
    steps = np.zeros((len(chosen), len(widths)))
    steps[np.arange(len(chosen)), chosen] = widths[chosen]
    return steps


def _along(
    draws: Float[np.ndarray, "n d"], axes: Float[np.ndarray, "d k"]
) -> Float[np.ndarray, "k d"]:
    """Steps of one standard deviation along the axes: the regressions of x on xᵀa."""
    centred = draws - draws.mean(axis=0)
    along = centred @ axes
    return (along.T @ centred) / len(draws) / np.maximum(along.std(axis=0), _TINY)[:, None]


def improper_around(evaluate: Evaluator, draws: Float[np.ndarray, "n d"]) -> Doubt | None:
    """Doubts if the mass falls no faster than 1/r as a coordinate leaves the draws."""
    evaluate = evaluate.far
    low, centre, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    return _improper_coordinate(evaluate, centre, high - low, _directions(evaluate.target))[0]


def improper_from(evaluate: Evaluator, early: Float[np.ndarray, "n d"]) -> Doubt | None:
    """Doubts if the mass falls no faster than 1/r as a coordinate leaves one of these points.

    No width is known there, so the unit of length is 1.
    """
    evaluate = evaluate.far
    scales, left = np.ones(evaluate.dim), _directions(evaluate.target)
    most = evaluate.count + _MOST_EVALUATIONS
    for point in early:
        doubt, left = _improper_coordinate(evaluate, point, scales, left)
        if doubt or not len(left) or evaluate.count > most:
            return doubt
    return None


def _improper_coordinate(
    evaluate: Evaluator,
    centre: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    directions: Int[np.ndarray, "k 2"],
) -> tuple[Doubt | None, Int[np.ndarray, "n 2"]]:
    r"""Doubts if the mass falls no faster than 1/r as one coordinate goes to ±∞.

    The other coordinates follow, so that curves are found too. At each distance r they move to the
    largest density, and Laplace's approximation gives the mass around it:

        log m(r) = log p(x(r)) − ½ log det(−H(r)),   H the Hessian in the other coordinates

    An integral of m is finite only if m falls faster than 1/r.

    **Returns:**

    the doubt, and the directions along which the mass was not seen to go.
    """
    if not 1 < evaluate.dim <= _MOST_DIM:
        return None, directions[:0]
    trace = _walked(evaluate, centre, scales, directions)
    left, flat = directions[~trace.is_gone], directions[_is_flat(trace)]
    if len(flat):  # confirmed by a walk through other points
        flat = flat[_is_flat(_walked(evaluate, centre, _OTHER_SCALE * scales, flat))]
    if not len(flat):
        return None, left
    direction = np.zeros(evaluate.dim)
    direction[flat[0, 0]] = flat[0, 1]
    return _in_words(evaluate.target, direction), left


def _directions(target: Target) -> Int[np.ndarray, "k 2"]:
    """Coordinates, and signs: in the first half each coordinate grows, in the second it falls.

    They are the coordinates of the smallest parameters, which are often scales.
    """
    sizes = np.concatenate([np.full(_size(shape), _size(shape)) for _, shape in target.layout])
    num = int(np.clip(_WIDTHS // target.dim, _FEWEST, _MOST))
    chosen = np.argsort(sizes, kind="stable")[:num]
    return np.column_stack([np.tile(chosen, 2), np.repeat([1, -1], len(chosen))])


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


def _walked(
    evaluate: Evaluator,
    centre: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    directions: Int[np.ndarray, "k 2"],
) -> Trace:
    """Walks from a centre, one in each direction. Those of one coordinate start as one."""
    which, signs = directions[:, 0], directions[:, 1:]
    scales = np.maximum(scales, 1e-30)
    reached = rounded(centre[which, None] + signs * scales[which, None] * np.append(0, _DISTANCES))
    possible = _is_representable(evaluate.target, reached, which)
    coordinates, of_each = np.unique(which, return_inverse=True)
    with np.errstate(all="ignore"):
        first = first_walks(evaluate, centre, scales, coordinates)
        return walk(evaluate, first, of_each, reached, possible)


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


def _is_flat(trace: Trace) -> Bool[np.ndarray, " k"]:
    """Whether the mass falls no faster than 1/r at the last distance that can be believed.

    A walk counts only if it can be believed from its start on.
    """
    # The last one may have lost its digits already, so the one before counts as well.
    ends = [(one, num - back) for one, num in enumerate(trace.num_sure) for back in (1, 2)]
    flat = np.zeros(len(trace.log_mass), bool)
    for one, end in ends:
        if end >= 3:
            begin = 0 if trace.is_last[one, end] else _begin(trace, one, end)
            flat[one] |= _falls_slowly(trace.log_mass[one], begin, end)
    return flat


def _begin(trace: Trace, one: int, end: int) -> int:
    """Where a walk has come to the mass.

    On the way to the mass, both p and the mass rise. In a funnel only p rises, and along a plain
    only the mass does.
    """
    both = np.stack([trace.log_mass[one, : end + 1], trace.log_p[one, : end + 1]])
    is_low = both < np.max(both, axis=1, keepdims=True) - _CLIMB
    return int(np.argmin(is_low.all(axis=0)))


def _falls_slowly(mass: Float[np.ndarray, " l"], begin: int, end: int) -> bool:
    """Whether the mass falls no faster than 1/r between two distances."""
    distances = np.append(0, _DISTANCES)
    # Behind the mass, the distance to it is the unit of length.
    if distances[end] < _NEAREST_END * max(1.0, distances[begin]):
        return False
    slope, last_slope = (
        (mass[end] - mass[k]) / np.log(distances[end] / distances[k]) for k in (end - 2, end - 1)
    )
    is_counted = mass[end] > np.max(mass[: end + 1]) - _NEGLIGIBLE
    is_counted |= distances[end] > _PRACTICALLY_INFINITE
    # A walk that has just come to another mode rises, and falls again.
    return bool(is_counted and slope >= -1 - _MARGIN and last_slope >= -1 - _LAST_MARGIN)


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


def _in_words(target: Target, direction: Float[np.ndarray, " d"]) -> Doubt:
    names = coordinate_names(target)
    share = np.abs(direction) / np.max(np.abs(direction))
    strongest = [int(i) for i in np.argsort(-share) if share[i] > 0.3][:3]
    moves = [f"{names[i]} {'grows' if direction[i] > 0 else 'falls'}" for i in strongest]
    scale = "" if target.supports is None else ", on the unconstrained scale"
    return Code.IMPROPER.doubt(
        "the posterior may be improper: its mass falls too slowly to be finite as "
        f"{' and '.join(moves)}{scale}. A proper prior there would help"
    )
