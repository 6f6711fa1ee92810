"""Modes that the search has not met: a narrow one, far from the rest, draws in few paths."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..targets import Target
from .gaussians import Gaussians, batch_and_match
from .search import Found, search

Points = Float[np.ndarray, "n d"]

_NEAREST, _FARTHEST = 0.5, 10.0
"""Widths of starts, in standard deviations of the best Gaussian's coordinates."""
_SAME = 0.1
"""Standard deviations within which two ends of paths are one."""
_LOCAL_SD = 0.1
_LEAST_MASS = 0.02
_APART = 1.0
"""KL(new‖known), in nats, from which on a Gaussian holds what no other does."""


def with_far_modes(key: PRNGKeyArray, target: Target, found: Found, gaussians: Gaussians, num_scans: int) -> Gaussians:
    """The Gaussians, and others at ends of new paths, where those hold mass that no Gaussian yet holds.

    Paths and Gaussians come in batches of the shapes that were compiled before.
    """
    usable = gaussians.usable()
    if not len(usable.elbos):
        return gaussians
    best = int(np.argmax(usable.elbos))
    centre, sds = np.asarray(usable.means[best]), np.linalg.norm(usable.roots[best], axis=1)
    ends = _ends_from_afar(key, target, centre, sds, len(found.points), num_scans)
    new = _distinct(ends, np.asarray(found.points, np.float64), sds)
    if not len(new):
        return gaussians
    num = len(gaussians.elbos)
    starts = jnp.asarray(np.resize(new, (num, target.dim)), centre.dtype)
    local = jnp.full(num, _LOCAL_SD, gaussians.elbos.dtype)
    others = batch_and_match(jax.random.fold_in(key, num_scans), target, starts, local)
    return _joined(gaussians, usable, others)


def _ends_from_afar(key, target, centre, sds, num_starts: int, num_scans: int) -> Points:
    """Finite ends of paths from around the centre, the highest first."""
    widths = np.geomspace(_NEAREST, _FARTHEST, num_starts)[:, None] * sds
    points, values = [np.zeros((0, target.dim))], [np.zeros(0)]
    for i in range(num_scans):
        xi = jax.random.normal(jax.random.fold_in(key, i), (num_starts, target.dim), centre.dtype)
        ends = search(target, jnp.asarray(centre + widths * np.asarray(xi), centre.dtype))
        points.append(np.asarray(ends.points, np.float64))
        values.append(np.asarray(ends.log_densities, np.float64))
    joined, heights = np.concatenate(points), np.concatenate(values)
    fine = np.isfinite(heights) & np.isfinite(joined).all(axis=1)
    return joined[fine][np.argsort(-heights[fine])]


def _distinct(ends: Points, known: Points, sds: Float[np.ndarray, " d"]) -> Points:
    """Ends that are neither known nor near an end before them."""
    kept: list[np.ndarray] = []
    for end in ends:
        others = np.concatenate([known, np.reshape(kept, (-1, len(sds)))])
        if np.all(np.max(np.abs(others - end) / sds, axis=1) > _SAME):
            kept.append(end)
    return np.reshape(kept, (-1, len(sds)))


def _joined(gaussians: Gaussians, usable: Gaussians, others: Gaussians) -> Gaussians:
    """With those others that hold a share of the mass, apart from all before them."""
    held = list(_parts(usable))
    total, chosen = max(elbo for *_, elbo in held), []
    for i, (mean, root, elbo) in enumerate(_parts(others)):
        fine = np.isfinite(elbo) and np.isfinite(root).all() and elbo > total + np.log(_LEAST_MASS)
        if fine and min(_divergence(mean, root, m, r) for m, r, _ in held) > _APART:
            held.append((mean, root, elbo))
            chosen.append(i)
    together = lambda a, b: jnp.asarray(np.concatenate([a, np.asarray(b)[chosen]]))  # noqa: E731
    return jax.tree.map(together, gaussians, others) if chosen else gaussians


def _parts(gaussians: Gaussians):
    return zip(*(np.asarray(part, np.float64) for part in gaussians), strict=True)


def _divergence(mean: np.ndarray, root: np.ndarray, other: np.ndarray, other_root: np.ndarray) -> float:
    """KL(N(mean, root rootᵀ) ‖ N(other, other_root other_rootᵀ))."""
    between, offset = np.linalg.solve(other_root, root), np.linalg.solve(other_root, mean - other)
    log_det = np.sum(np.log(np.diag(other_root)) - np.log(np.diag(root)))
    return float(0.5 * (np.sum(between**2) + offset @ offset - len(mean)) + log_det)
