"""Walks to infinity: one coordinate goes out, the others follow, and the mass around is measured."""

from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._core.hmc import Evaluate
from ._paths import Places, lbfgs
from ._rows import put, rows

_CLIMBING_STEPS = 20
_NEWTON_STEPS, _STEP_SIZES = 2, (1.0, 0.3, 0.03)
_CONVERGED = 1e-3
"""Squared distance to the largest density, in standard deviations, at which a walk goes on."""
_DIFFERENCE = 0.1
"""Half the distance between the scores whose difference is a curvature, in standard deviations."""
_FLATTEST, _SHARPEST = 1 / 16, 1e4
"""Smallest and largest curvature in the coordinates of the place before. Along a flat direction the
width grows by at most 4 from one distance to the next, so that no digits are lost."""
_NEARLY_FLAT = 1e-4
"""Curvatures below this are taken for 0, also if rounding makes them negative."""
_GONE = 60.0
"""A walk ends where the mass has fallen by more, in nats. No tail beyond could be noticed."""

_Rows = TypeVar("_Rows", "Walks", "_Curvature")


class Walks(NamedTuple):
    """The points of some walks, and a root R of the covariance of the mass around each.

    Columns of R are directions in the space of all coordinates but the one that goes out.
    """

    x: Float[np.ndarray, "w d"]
    coordinates: Int[np.ndarray, " w"]
    roots: Float[np.ndarray, "w d d-1"]
    inverses: Float[np.ndarray, "w d-1 d"]
    log_dets: Float[np.ndarray, " w"]
    log_p: Float[np.ndarray, " w"]
    scores: Float[np.ndarray, "w d"]


class _Curvature(NamedTuple):
    """The gradient and −H in the coordinates u with x = here + R u: −H = V diag(values) Vᵀ."""

    gradients: Float[np.ndarray, "w d-1"]
    values: Float[np.ndarray, "w d-1"]
    vectors: Float[np.ndarray, "w d-1 d-1"]

    @property
    def decrements(self) -> Float[np.ndarray, " w"]:
        """Squared distances to the largest density."""
        turned = np.einsum("wij,wi->wj", self.vectors, self.gradients)
        return np.sum(turned**2 / np.clip(self.values, _FLATTEST, _SHARPEST), axis=1)

    @property
    def newton(self) -> Float[np.ndarray, "w d-1"]:
        turned = np.einsum("wij,wi->wj", self.vectors, self.gradients)
        scaled = turned / np.maximum(np.abs(self.values), _NEARLY_FLAT)
        return np.einsum("wij,wj->wi", self.vectors, scaled)


class Trace(NamedTuple):
    """What some walks met at each distance.

    **Attributes:**

    - `log_mass`: the log mass around their points, up to a constant.
    - `log_p`: the log density at their points.
    - `is_sure`: whether these can be believed.
    - `is_last`: whether the next distance cannot be represented.
    """

    log_mass: Float[np.ndarray, "w l"]
    log_p: Float[np.ndarray, "w l"]
    is_sure: Bool[np.ndarray, "w l"]
    is_last: Bool[np.ndarray, "w l"]

    @property
    def num_sure(self) -> Int[np.ndarray, " w"]:
        """How many distances can be believed, from the start on."""
        return np.sum(np.cumprod(self.is_sure, axis=1), axis=1)

    @property
    def is_gone(self) -> Bool[np.ndarray, " w"]:
        """Whether the mass was seen to go."""
        last = np.maximum(self.num_sure - 1, 0)
        with np.errstate(invalid="ignore"):  # where the density is 0 from the start
            fallen = np.max(self.log_mass, axis=1) - self.log_mass[np.arange(len(last)), last]
        return (self.num_sure > 0) & (fallen > _GONE)


def first_walks(
    evaluate: Evaluate,
    centre: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    coordinates: Int[np.ndarray, " w"],
) -> Walks:
    """Walks that start at a centre, in units of these scales."""
    x, zeros = np.tile(rounded(centre), (len(coordinates), 1)), np.zeros(len(coordinates))
    roots = np.stack([np.delete(np.diag(scales), i, axis=1) for i in coordinates])
    inverses = np.stack([np.delete(np.diag(1 / scales), i, axis=0) for i in coordinates])
    return Walks(x, coordinates, roots, inverses, zeros, *evaluate(x))


def walk(
    evaluate: Evaluate,
    first: Walks,
    of_each: Int[np.ndarray, " w"],
    reached: Float[np.ndarray, "w l"],
    possible: Bool[np.ndarray, "w l"],
) -> Trace:
    """What walks meet at each distance.

    A walk ends where it cannot be believed, or where the mass is gone.

    **Arguments:**

    - `first`, `of_each`: the starts of walks, and which of them is the start of each walk. The two
        walks of one coordinate start as one.
    """
    is_last = ~np.roll(possible, -1, axis=1)
    is_last[:, -1] = False
    nowhere = np.full(reached.shape, -np.inf)
    trace = Trace(nowhere, nowhere.copy(), np.zeros(reached.shape, bool), is_last)
    first, first_sure = _level(evaluate, first)
    walks, sure = rows(first, of_each), first_sure[of_each]
    active = np.arange(len(reached))
    for level in range(reached.shape[1]):
        if level:
            walks, sure = _level(evaluate, _stepped_out(evaluate, walks, reached[active, level]))
        log_mass = walks.log_p + walks.log_dets
        trace.log_mass[active, level], trace.log_p[active, level] = log_mass, walks.log_p
        trace.is_sure[active, level] = sure
        going = sure & (log_mass > np.max(trace.log_mass[active], axis=1) - _GONE)
        going &= ~is_last[active, level]
        active, walks = active[going], rows(walks, going)
        if not len(active):
            break
    return trace


def _stepped_out(evaluate: Evaluate, walks: Walks, reached: Float[np.ndarray, " w"]) -> Walks:
    """The walks at their next distance, before the other coordinates follow."""
    x = walks.x.copy()
    x[np.arange(len(x)), walks.coordinates] = reached
    log_p, scores = evaluate(x)
    return walks._replace(x=x, log_p=log_p, scores=scores)


def _level(evaluate: Evaluate, walks: Walks) -> tuple[Walks, Bool[np.ndarray, " w"]]:
    """The largest p in all coordinates but one, and whether the mass around it is believed.

    Derivatives are taken in the coordinates of the place before. There, curvatures are near 1,
    however narrow the mass becomes. A curvature costs many evaluations. So L-BFGS goes first, and
    Newton's method ends the way.
    """
    walks = _climbed(evaluate, walks)
    curvature = _curvature(evaluate, walks)
    for _ in range(_NEWTON_STEPS):
        going = np.flatnonzero(curvature.decrements > _CONVERGED)
        if not len(going):
            break
        moved = _moved(evaluate, rows(walks, going), rows(curvature, going).newton)
        walks = _replaced(walks, going, moved)
        curvature = _replaced(curvature, going, _curvature(evaluate, moved))
    return _settled(walks, curvature)


def _climbed(evaluate: Evaluate, walks: Walks) -> Walks:
    """The walks after some steps of L-BFGS in the coordinates u with x = here + R u."""
    moving = np.flatnonzero(~(np.sum(_gradients(walks) ** 2, axis=1) < _CONVERGED))
    if not len(moving):
        return walks
    here = rows(walks, moving)

    def moved(u_of: Float[np.ndarray, "n d"]) -> Walks:
        """In a row, the first d − 1 numbers are u. The last one says which walk it is."""
        those = rows(here, u_of[:, -1].astype(int))
        x = rounded(those.x + np.einsum("wij,wj->wi", those.roots, u_of[:, :-1]))
        log_p, scores = evaluate(x)
        return those._replace(x=x, log_p=log_p, scores=scores)

    def heights(u_of: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray]:
        there = moved(u_of)
        return there.log_p, np.column_stack([_gradients(there), np.zeros(len(u_of))])

    stay = np.column_stack([np.zeros(here.roots.shape[::2]), np.arange(len(moving))])
    losses = np.where(np.isfinite(here.log_p), -here.log_p, np.inf)
    start = Places(stay, losses, np.column_stack([-_gradients(here), np.zeros(len(moving))]))
    ends, _ = lbfgs(heights, start, _CLIMBING_STEPS, 0)
    return _replaced(walks, moving, moved(ends.x))


def _settled(walks: Walks, curvature: _Curvature) -> tuple[Walks, Bool[np.ndarray, " w"]]:
    """The walks with the roots of the mass around them, and whether these can be believed."""
    values = curvature.values
    clipped = np.clip(values, _FLATTEST, _SHARPEST)
    log_dets = walks.log_dets - 0.5 * np.sum(np.log(clipped), axis=1)
    sure = np.isfinite(walks.log_p + log_dets) & (curvature.decrements < 0.5)
    sure &= (np.min(values, axis=1) > -_NEARLY_FLAT) & (np.max(values, axis=1) < _SHARPEST)
    # Columns are principal directions: along a flat one, nothing steep has to cancel.
    roots = walks.roots @ curvature.vectors / np.sqrt(clipped)[:, None]
    inverses = np.sqrt(clipped)[:, :, None] * (curvature.vectors.swapaxes(1, 2) @ walks.inverses)
    return walks._replace(roots=roots, inverses=inverses, log_dets=log_dets), sure


def _moved(evaluate: Evaluate, walks: Walks, steps: Float[np.ndarray, "w d-1"]) -> Walks:
    """The walks at the highest of the points that steps of several sizes reach, or unmoved."""
    moves = np.einsum("wij,wj->wi", walks.roots, steps)
    tried = rounded(walks.x[:, None] + np.multiply.outer(_STEP_SIZES, moves).swapaxes(0, 1))
    log_p, scores = _evaluated(evaluate, tried)
    log_p = np.column_stack([walks.log_p, log_p])
    best = np.argmax(np.where(np.isfinite(log_p), log_p, -np.inf), axis=1)
    rows = np.arange(len(best))
    x, scores = (
        np.concatenate([old[:, None], new], axis=1)[rows, best]
        for old, new in ((walks.x, tried), (walks.scores, scores))
    )
    return walks._replace(x=x, log_p=log_p[rows, best], scores=scores)


def _curvature(evaluate: Evaluate, walks: Walks) -> _Curvature:
    """Gradients and curvatures by central differences of scores along the columns of the roots."""
    steps = _DIFFERENCE * walks.roots.swapaxes(1, 2)
    after, before = (rounded(walks.x[:, None] + sign * steps) for sign in (1, -1))
    _, scores = _evaluated(evaluate, np.concatenate([after, before], axis=1))
    changes = np.subtract(*np.split(scores, 2, axis=1)) @ walks.roots
    # The steps that were taken, after rounding: in units of the columns, nearly the identity.
    taken = (after - before) @ walks.inverses.swapaxes(1, 2) / (2 * _DIFFERENCE)
    is_lost = np.sum(np.abs(taken - np.eye(taken.shape[1])), axis=2).max(axis=1) > 0.5
    taken[is_lost], changes[is_lost] = np.eye(taken.shape[1]), np.nan
    curvatures = -np.linalg.solve(taken, changes) / (2 * _DIFFERENCE)
    return _Curvature(_gradients(walks), *_eigen((curvatures + curvatures.swapaxes(1, 2)) / 2))


def _eigen(
    matrices: Float[np.ndarray, "w k k"],
) -> tuple[Float[np.ndarray, "w k"], Float[np.ndarray, "w k k"]]:
    """Eigenvalues and eigenvectors, NaN for matrices that are not finite."""
    fine = np.isfinite(matrices).all(axis=(1, 2))
    try:
        values, vectors = np.linalg.eigh(np.where(fine[:, None, None], matrices, 0))
    except np.linalg.LinAlgError:  # one of them: no walk is sure then
        return np.full(matrices.shape[:2], np.nan), np.full_like(matrices, np.nan)
    return np.where(fine[:, None], values, np.nan), vectors


def _gradients(walks: Walks) -> Float[np.ndarray, "w d-1"]:
    return np.einsum("wij,wi->wj", walks.roots, walks.scores)


def _evaluated(
    evaluate: Evaluate, points: Float[np.ndarray, "w n d"]
) -> tuple[Float[np.ndarray, "w n"], Float[np.ndarray, "w n d"]]:
    log_p, scores = evaluate(points.reshape(-1, points.shape[2]))
    return log_p.reshape(points.shape[:2]), scores.reshape(points.shape)


def rounded(x: np.ndarray) -> np.ndarray:
    """The points at which the target is evaluated, in its own precision."""
    return x.astype(jnp.result_type(float)).astype(np.float64)


def _replaced(walks: _Rows, which: Int[np.ndarray, " n"], new: _Rows) -> _Rows:
    """A copy with new values in some rows."""
    copies = type(walks)(*(part.copy() for part in walks))
    put(copies, which, new)
    return copies
