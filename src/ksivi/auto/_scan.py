"""Modes that the search has not met: a narrow one, far from the rest, draws in few paths."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._core.compile import one_shot
from ..targets import Target
from ._gaussians import LEAST_MASS, LOCAL_SD, Gaussians, batch_and_match, log_gaussian
from ._search import Found, search

Points = Float[np.ndarray, "n d"]

_NEAREST, _FARTHEST = 0.5, 10.0
"""Widths of starts, in standard deviations of the best Gaussian's coordinates."""
_OF = 256
"""Points of which one is started from."""
_SAME = 0.1
"""Standard deviations within which two ends of paths are one."""
_APART = 1.0
"""KL(new‖known), in nats, from which on a Gaussian holds what no other does."""
_ROUGH = 0.5
"""Nats over a thousandth of a standard deviation, from which on a density is rounding: where it is right, some 0.01."""


def with_far_modes(key: PRNGKeyArray, target: Target, found: Found, gaussians: Gaussians) -> Gaussians:
    """The Gaussians, and others at ends of new paths, where those hold mass that no Gaussian yet holds.

    Paths and Gaussians come in batches of the shapes that were compiled before.
    """
    usable = gaussians.usable()
    if not len(usable.elbos):
        return gaussians
    start_key, match_key, rough_key = jax.random.split(key, 3)
    best = int(np.argmax(usable.elbos))
    sds = jnp.linalg.norm(usable.roots[best], axis=1)
    ends = search(target, _unexplained(start_key, target, usable, usable.means[best], sds, len(found.points)))
    new = _distinct(ends, np.asarray(found.points, np.float64), np.asarray(sds, np.float64))
    if not len(new):
        return gaussians
    num, dtype = len(gaussians.elbos), gaussians.elbos.dtype
    starts = jnp.asarray(np.resize(new, (num, target.dim)), dtype)
    others = batch_and_match(match_key, target, starts, jnp.full(num, LOCAL_SD, dtype))
    real = np.asarray(_roughness(rough_key, target, others)) < _ROUGH
    return _joined(gaussians, usable, others, real)


@one_shot
def _unexplained(
    key: PRNGKeyArray, target: Target, known: Gaussians, centre: Float[Array, " d"], sds: Float[Array, " d"], num: int
) -> Float[Array, "m d"]:
    """Of every 256 points around the centre, near and far, the one where p is most above what the Gaussians hold."""
    widths = jnp.geomspace(_NEAREST, _FARTHEST, _OF).astype(sds.dtype)[:, None] * sds[None]
    xi = jax.random.normal(key, (num, _OF, target.dim), sds.dtype)
    points = centre[None, None] + widths[None] * xi

    def excess(x: Float[Array, "n d"]) -> Float[Array, " n"]:
        parts = jax.vmap(lambda mean, root, elbo: elbo + log_gaussian(mean, root, x))(*known)
        return jax.vmap(target.log_density)(x) - jax.nn.logsumexp(parts, axis=0)

    found = jax.vmap(excess)(points)
    chosen = jnp.argmax(jnp.where(jnp.isfinite(found), found, -jnp.inf), axis=1)
    return jnp.take_along_axis(points, chosen[:, None, None], axis=1)[:, 0]


def _distinct(found: Found, known: Points, sds: Float[np.ndarray, " d"]) -> Points:
    """Finite ends that are neither known nor near one that is higher."""
    kept: list[np.ndarray] = []
    ends, heights = (np.asarray(part, np.float64) for part in (found.points, found.log_densities))
    for i in np.argsort(-heights):
        others = np.concatenate([known, np.reshape(kept, (-1, len(sds)))])
        fine = np.isfinite(heights[i]) and np.isfinite(ends[i]).all()
        if fine and np.all(np.max(np.abs(others - ends[i]) / sds, axis=1) > _SAME):
            kept.append(ends[i])
    return np.reshape(kept, (-1, len(sds)))


@one_shot
def _roughness(key: PRNGKeyArray, target: Target, gaussians: Gaussians) -> Float[Array, " m"]:
    """By how many nats log p typically changes over a thousandth of a standard deviation.

    Far out, where terms of a density are huge and cancel, rounding makes peaks that are none.
    """
    xi, step = jax.random.normal(key, (2, _OF, target.dim), gaussians.means.dtype)

    def change(mean: Float[Array, " d"], root: Float[Array, "d d"]) -> Float[Array, ""]:
        here, there = (mean[None] + u @ root.T for u in (xi, xi + 1e-3 * step))
        values = jax.vmap(target.log_density)
        return jnp.median(jnp.abs(values(here) - values(there)))

    return jax.vmap(change)(gaussians.means, gaussians.roots)


def _joined(gaussians: Gaussians, usable: Gaussians, others: Gaussians, real: Bool[np.ndarray, " m"]) -> Gaussians:
    """With those others that are real and hold a share of the mass, apart from all before them."""
    held = usable.each()
    total, chosen = max(elbo for *_, elbo in held), []
    for i, (mean, root, elbo) in enumerate(others.each()):
        fine = real[i] and np.isfinite(root).all() and elbo > total + np.log(LEAST_MASS)
        if fine and min(_divergence(mean, root, m, r) for m, r, _ in held) > _APART:
            held.append((mean, root, elbo))
            chosen.append(i)
    together = lambda a, b: jnp.asarray(np.concatenate([a, np.asarray(b)[chosen]]))  # noqa: E731
    return jax.tree.map(together, gaussians, others) if chosen else gaussians


def _divergence(mean: np.ndarray, root: np.ndarray, other: np.ndarray, other_root: np.ndarray) -> float:
    """KL(N(mean, root rootᵀ) ‖ N(other, other_root other_rootᵀ))."""
    between, offset = np.linalg.solve(other_root, root), np.linalg.solve(other_root, mean - other)
    log_det = np.sum(np.log(np.diag(other_root)) - np.log(np.diag(root)))
    return float(0.5 * (np.sum(between**2) + offset @ offset - len(mean)) + log_det)
