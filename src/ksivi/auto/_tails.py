"""Whether the posterior is proper: how fast its mass falls far out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Scalar

from .._core.compile import one_shot
from .._core.numerics import full_precision
from ..targets import Target
from ._names import coordinate_names

_DISTANCES = 2.0 ** np.array([*np.arange(0, 4.1, 0.5), 6, 8, 12, 16, 20, 24])
"""In interquartile ranges. They are close together at first, because scales soon underflow."""
_NEAREST_END, _PRACTICALLY_INFINITE = 2.8, 1e6
_OTHER_SCALE = 1.3
_NUM_COORDINATES, _MOST_DIM = 12, 50
_NEWTON_STEPS, _STEP_SIZES = 4, (1.0, 0.3, 0.03, 0.0)
_FLATTEST, _SHARPEST = 1 / 16, 1e4
"""Smallest and largest curvature in the coordinates of the place before. Along a flat direction the
width grows by at most 4 from one distance to the next, so that no digits are lost."""
_NEARLY_FLAT = 1e-4
"""Curvatures below this are taken for 0, also if rounding makes them negative."""
_LARGEST_LOG = 80.0
"""Beyond it, the exponential of a coordinate overflows, or a library cuts it off."""
_MARGIN, _LAST_MARGIN = 0.05, 0.5
"""Margins for rounding, in the exponent of a tail: over two distances, and over the last one."""
_NEGLIGIBLE = 2 * np.log(1e4)
"""Nats below the centre. Along a straight line, the density may rise again from there."""


class Walk(NamedTuple):
    """The log mass at each distance along each direction, and whether it can be believed."""

    log_mass: Float[Array, "k l"]
    is_sure: Bool[Array, "k l"]


def is_improper(
    target: Target, draws: Float[np.ndarray, "n d"], axes: Float[np.ndarray, "d d"]
) -> str | None:
    """Doubts if the mass falls no faster than 1/r along a coordinate or a principal axis."""
    low, centre, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    found = improper_around(target, draws)
    if found is not None:
        return found
    turned = np.linalg.inv(axes) * np.std(draws @ axes, axis=0)[:, None]
    steps = np.concatenate([np.diag(high - low), turned])
    flat = _is_flat_along(target, centre, np.concatenate([steps, -steps]))
    if not flat.any():
        return None
    first, sign = int(np.argmax(flat)) % len(steps), int(np.argmax(flat)) < len(steps)
    return _in_words(target, steps[first] * (1 if sign else -1))


def improper_around(target: Target, draws: Float[np.ndarray, "n d"]) -> str | None:
    """Doubts if the mass falls no faster than 1/r as a coordinate leaves the draws."""
    low, centre, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    return _improper_coordinate(target, centre, high - low)


def improper_from(target: Target, points: Float[np.ndarray, "n d"]) -> str | None:
    """Doubts if the mass falls no faster than 1/r as a coordinate leaves one of these points.

    No width is known there, so the unit of length is 1.
    """
    doubts = (_improper_coordinate(target, point, np.ones(target.dim)) for point in points)
    return next((doubt for doubt in doubts if doubt), None)


def _improper_coordinate(
    target: Target, centre: Float[np.ndarray, " d"], scales: Float[np.ndarray, " d"]
) -> str | None:
    r"""Doubts if the mass falls no faster than 1/r as one coordinate goes to ±∞.

    The other coordinates follow, so that curves are found too. At each distance r they move to the
    largest density, and Laplace's approximation gives the mass around it:

        log m(r) = log p(x(r)) − ½ log det(−H(r)),   H the Hessian in the other coordinates

    An integral of m is finite only if m falls faster than 1/r.
    """
    if not 1 < target.dim <= _MOST_DIM or not _has_second_derivatives(target):
        return None
    chosen = _simplest(target)
    flat = _is_flat_from(target, centre, scales, chosen)
    if flat.any():  # confirmed by a walk through other points
        flat &= _is_flat_from(target, centre, _OTHER_SCALE * scales, chosen)
    if not flat.any():
        return None
    first = int(np.argmax(flat))
    direction = np.zeros(target.dim)
    direction[chosen[first % len(chosen)]] = 1 if first < len(chosen) else -1
    return _in_words(target, direction)


def _has_second_derivatives(target: Target) -> bool:
    """Whether JAX can differentiate the score. Nothing is computed."""
    point = jnp.zeros(target.dim, jnp.result_type(float))
    try:
        jax.eval_shape(jax.jacfwd(target.score), point)
    except (TypeError, ValueError, RuntimeError):  # what JAX raises without a rule
        return False
    return True


def _is_flat_from(
    target: Target,
    centre: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    chosen: Int[np.ndarray, " k"],
) -> Bool[np.ndarray, " k2"]:
    """Whether the mass falls too slowly as each chosen coordinate grows, and as each falls."""
    scales = np.maximum(scales, 1e-30)
    place = (jnp.asarray(part, jnp.result_type(float)) for part in (centre, scales))
    walk = _walk(target.unwhitened().whitened(*place), jnp.asarray(chosen))
    is_sure = np.asarray(walk.is_sure) & _is_representable(target, centre, scales, chosen)
    return _is_flat(np.asarray(walk.log_mass, np.float64), is_sure)


def _simplest(target: Target) -> Int[np.ndarray, " k"]:
    """Up to 12 coordinates: those of the smallest parameters, which are often scales."""
    sizes = np.concatenate([np.full(_size(shape), _size(shape)) for _, shape in target.layout])
    return np.argsort(sizes, kind="stable")[:_NUM_COORDINATES]


def _is_representable(
    target: Target,
    centre: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    chosen: Int[np.ndarray, " k"],
) -> Bool[np.ndarray, "k2 l"]:
    """Whether a constrained coordinate has not left the range of its transformation."""
    real = np.concatenate(
        [
            np.full(_size(shape), target.supports is None or target.supports[i].kind == "real")
            for i, (_, shape) in enumerate(target.layout)
        ]
    )
    signs = np.repeat([1.0, -1.0], len(chosen))[:, None]
    both = np.tile(chosen, 2)
    x = centre[both, None] + signs * scales[both, None] * np.append(0, _DISTANCES)[None]
    return real[both, None] | (np.abs(x) < _LARGEST_LOG)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


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


class _Place(NamedTuple):
    """A point of a walk, and a root R of the covariance of the mass around it, with log det R."""

    x: Float[Array, " d"]
    root: Float[Array, "d d"]
    log_det: Scalar


@one_shot
def _walk(target: Target, chosen: Int[Array, " k"]) -> Walk:
    """Walks from the origin of a whitened target to ±∞ along the chosen coordinates."""
    distances = jnp.asarray(np.append(0, _DISTANCES), jnp.result_type(float))

    def along(i: Int[Array, ""], sign: Scalar) -> Walk:
        eye = jnp.eye(target.dim, dtype=distances.dtype)
        start = _Place(jnp.zeros(target.dim, distances.dtype), eye, jnp.zeros((), eye.dtype))

        def level(place: _Place, r: Scalar) -> tuple[_Place, Walk]:
            return _level(target, place._replace(x=place.x.at[i].set(sign * r)), i)

        return lax.scan(level, start, distances)[1]

    signs = jnp.repeat(jnp.asarray([1.0, -1.0], distances.dtype), len(chosen))
    with full_precision():
        return jax.vmap(along)(jnp.tile(chosen, 2), signs)


def _level(target: Target, place: _Place, i: Int[Array, ""]) -> tuple[_Place, Walk]:
    """Newton's method in all coordinates but i, and the mass around its end.

    Derivatives are taken in the coordinates of the place before. There, curvatures are near 1,
    however narrow the mass becomes.
    """
    root = place.root

    def newton(x, _):
        gradient, values, vectors = _curvature(target, x, root, i)
        step = root @ (
            vectors @ ((vectors.T @ gradient) / jnp.maximum(jnp.abs(values), _NEARLY_FLAT))
        )
        tried = x[None] + jnp.asarray(_STEP_SIZES, x.dtype)[:, None] * step[None]
        heights = jax.vmap(target.log_density)(tried)
        return tried[jnp.argmax(jnp.where(jnp.isfinite(heights), heights, -jnp.inf))], None

    x, _ = lax.scan(newton, place.x, None, length=_NEWTON_STEPS)
    gradient, values, vectors = _curvature(target, x, root, i)
    clipped = jnp.clip(values, _FLATTEST, _SHARPEST)
    decrement = jnp.sum((vectors.T @ gradient) ** 2 / clipped)
    log_det = place.log_det - 0.5 * jnp.sum(jnp.log(clipped))
    log_mass = target.log_density(x) + log_det
    is_sure = jnp.isfinite(log_mass) & (decrement < 0.5) & (jnp.min(values) > -_NEARLY_FLAT)
    is_sure &= jnp.max(values) < _SHARPEST
    # A symmetric root keeps coordinate i apart from the others.
    new_root = root @ (vectors / jnp.sqrt(clipped)[None]) @ vectors.T
    return _Place(x, new_root, log_det), Walk(log_mass, is_sure)


def _curvature(target: Target, x: Float[Array, " d"], root: Float[Array, "d d"], i):
    """The gradient, and the eigenvalues and eigenvectors of −H, in u with x = here + R u.

    Coordinate i is held fixed. It keeps the curvature 1.
    """
    is_free = jnp.arange(len(x)) != i
    free_root = jnp.where(is_free[:, None] & is_free[None], root, 0)
    score = lambda u: free_root.T @ target.score(x + free_root @ u)  # noqa: E731
    zero = jnp.zeros_like(x)
    curvature = -jax.jacfwd(score)(zero) + jnp.diag(1 - is_free.astype(x.dtype))
    return score(zero), *jnp.linalg.eigh(curvature)


def _is_flat_along(
    target: Target, centre: Float[np.ndarray, " d"], steps: Float[np.ndarray, "n d"]
) -> Bool[np.ndarray, " n"]:
    """Whether the density falls no faster than 1/r along straight lines."""
    middle, near, far = (
        np.asarray(_along(target, centre, r * steps), np.float64) for r in (0.0, 1e2, 1e4)
    )
    fine = np.isfinite(near) & np.isfinite(far) & (far > middle - _NEGLIGIBLE)
    slopes = np.full(len(near), -np.inf)
    slopes[fine] = (far[fine] - near[fine]) / np.log(1e2)
    return slopes >= -1 - _MARGIN


@one_shot
def _along(
    target: Target, centre: Float[np.ndarray, " d"], steps: Float[np.ndarray, "n d"]
) -> Float[Array, " n"]:
    points = jnp.asarray(centre[None] + steps, jnp.result_type(float))
    return jax.vmap(target.unwhitened().log_density)(points)


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
