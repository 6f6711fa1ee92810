"""Walks to infinity: one coordinate goes out, the others follow, and the mass around is measured."""

from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._core.hmc import Evaluate
from ._rows import put, rows

_NEWTON_STEPS, _STEP_SIZES = 4, (1.0, 0.3, 0.03)
_CONVERGED = 1e-3
"""Squared distance to the largest density, in standard deviations, at which a walk goes on."""
_DIFFERENCE = 0.1
"""Half the distance between the scores whose difference is a curvature, in standard deviations."""
_FLATTEST, _SHARPEST = 1 / 16, 1e4
"""Smallest and largest curvature in the coordinates of the place before. Along a flat direction the
width grows by at most 4 from one distance to the next, so that no digits are lost."""
_NEARLY_FLAT = 1e-4
"""Curvatures below this are taken for 0, also if rounding makes them negative."""
_GONE = 100.0
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


def first_walks(
    centre: Float[np.ndarray, " d"],
    scales: Float[np.ndarray, " d"],
    coordinates: Int[np.ndarray, " w"],
) -> Walks:
    x, zeros = np.tile(rounded(centre), (len(coordinates), 1)), np.zeros(len(coordinates))
    roots = np.stack([np.delete(np.diag(scales), i, axis=1) for i in coordinates])
    inverses = np.stack([np.delete(np.diag(1 / scales), i, axis=0) for i in coordinates])
    return Walks(x, coordinates, roots, inverses, zeros, zeros, np.zeros_like(x))


def walk(
    evaluate: Evaluate,
    walks: Walks,
    reached: Float[np.ndarray, "w l"],
    possible: Bool[np.ndarray, "w l"],
) -> tuple[Float[np.ndarray, "w l"], Bool[np.ndarray, "w l"]]:
    """The log mass at each distance of each walk, and whether it can be believed.

    A walk ends where it cannot be believed, or where the mass is gone.
    """
    log_mass, is_sure = np.full(reached.shape, -np.inf), np.zeros(reached.shape, bool)
    active = np.arange(len(reached))
    for level in range(reached.shape[1]):
        going = possible[active, level]
        active, walks = active[going], rows(walks, going)
        if not len(active):
            break
        walks.x[np.arange(len(active)), walks.coordinates] = reached[active, level]
        walks, sure = _level(evaluate, walks)
        log_mass[active, level], is_sure[active, level] = walks.log_p + walks.log_dets, sure
        going = sure & (log_mass[active, level] > np.max(log_mass[active], axis=1) - _GONE)
        active, walks = active[going], rows(walks, going)
    return log_mass, is_sure


def _level(evaluate: Evaluate, walks: Walks) -> tuple[Walks, Bool[np.ndarray, " w"]]:
    """Newton's method in all coordinates but one, and whether the mass at its end is believed.

    Derivatives are taken in the coordinates of the place before. There, curvatures are near 1,
    however narrow the mass becomes. So the first step is taken as if they were 1.
    """
    log_p, scores = evaluate(walks.x)
    walks = walks._replace(log_p=log_p, scores=scores)
    walks = _moved(evaluate, walks, _gradients(walks))
    curvature = _curvature(evaluate, walks)
    for _ in range(_NEWTON_STEPS):
        going = np.flatnonzero(curvature.decrements > _CONVERGED)
        if not len(going):
            break
        moved = _moved(evaluate, rows(walks, going), rows(curvature, going).newton)
        walks = _replaced(walks, going, moved)
        curvature = _replaced(curvature, going, _curvature(evaluate, moved))
    return _settled(walks, curvature)


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
