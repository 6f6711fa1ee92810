"""Looks for modes that the search missed. A narrow mode far from others attracts few paths."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Scalar

from .._core.compile import one_shot
from .._core.hmc import Place, hmc_transition
from ..targets import Target
from ._gaussians import LOCAL_SD, Gaussians, batch_and_match, standardised
from ._search import Found, search

Points = Float[np.ndarray, "n d"]

_NEAREST, FARTHEST = 0.5, 10.0
"""Widths of the starts, in standard deviations of the best Gaussian."""
_POINTS_PER_START = 2_048
CHAINS_PER_START = 8
"""One start is chosen from this many points, and from the points of this many tempered chains."""
_HOT, _COOLING, _HOTTEST = 15, 15, (0.3, 0.01)
"""Transitions of a chain while hot and while cooling, and the range of its first β."""
_ACCEPTANCE, _FIRST_STEP = 0.7, 0.3
_DEGREES = 2.0
"""Degrees of freedom of the Student-t densities that stand for the known modes. A Gaussian would
make every heavy tail look like an unknown mode."""
_MAX_GAP = 30.0
"""Gaussians whose ELBO is further below the best, in nats, are not kept."""
_NUM_ROUGH = 256
_SAME_MODE_SDS = 0.1
"""Two ends of paths are the same if they differ by fewer standard deviations."""
_MIN_KL = 1.0
"""A Gaussian is new if KL(new‖known) to all known ones is larger, in nats."""
_MAX_ROUGHNESS = 0.5
"""Change of log p over a thousandth of a standard deviation above which it is rounding error, in
nats. A correct density changes by about 0.01."""


def with_far_modes(
    key: PRNGKeyArray, target: Target, found: Found, gaussians: Gaussians
) -> tuple[Gaussians, Points]:
    """Adds Gaussians at modes that the first search missed. Returns the ends of the new paths too.

    Each new path starts where the density most exceeds that of the known modes. Paths and Gaussians
    have the batch shapes that are already compiled.
    """
    usable, none = gaussians.usable(), np.zeros((0, target.dim))
    if not len(usable.elbos):
        return gaussians, none
    start_key, match_key, rough_key = jax.random.split(key, 3)
    best = int(np.argmax(usable.elbos))
    sds = jnp.linalg.norm(usable.roots[best], axis=1)
    starts = _new_starts(start_key, target, usable, jnp.asarray(best), len(found.points))
    ends = search(target, starts)
    new = _distinct(ends, np.asarray(found.points, np.float64), np.asarray(sds, np.float64))
    if not len(new):
        return gaussians, none
    num, dtype = len(gaussians.elbos), gaussians.elbos.dtype
    starts = jnp.asarray(np.resize(new, (num, target.dim)), dtype)
    others = batch_and_match(match_key, target, starts, jnp.full(num, LOCAL_SD, dtype))
    # Around the ends themselves too: a Gaussian that starts at a peak of rounding may leave it.
    around = Gaussians(starts, jnp.tile(LOCAL_SD * jnp.diag(sds), (num, 1, 1)), others.elbos)
    real, smooth = (
        np.asarray(_roughness(rough_key, target, one)) < _MAX_ROUGHNESS for one in (others, around)
    )
    return _joined(gaussians, usable, others, real), new[:num][smooth[: len(new)]]


@one_shot
def _new_starts(
    key: PRNGKeyArray, target: Target, known: Gaussians, best: Int[Array, ""], num: int
) -> Float[Array, "m d"]:
    """For each start, the one of many points where the density most exceeds that of known modes."""
    wide_key, hot_key = jax.random.split(key)
    centre, sds = known.means[best], jnp.linalg.norm(known.roots[best], axis=1)
    widths = jnp.geomspace(_NEAREST, FARTHEST, _POINTS_PER_START).astype(sds.dtype)
    xi = jax.random.normal(wide_key, (num, _POINTS_PER_START, target.dim), sds.dtype)
    wide = centre[None, None] + widths[None, :, None] * sds[None, None] * xi
    hot = jax.vmap(lambda key: _tempered_points(key, target, centre, known.roots[best]))(
        jax.random.split(hot_key, num)
    )
    points = jnp.concatenate([wide, hot], axis=1)

    def excess(x: Float[Array, "n d"]) -> Float[Array, " n"]:
        parts = jax.vmap(lambda mean, root, elbo: elbo + _log_student(mean, root, x))(*known)
        return jax.vmap(target.log_density)(x) - jax.nn.logsumexp(parts, axis=0)

    found = jax.vmap(excess)(points)
    chosen = jnp.argmax(jnp.where(jnp.isfinite(found), found, -jnp.inf), axis=1)
    return jnp.take_along_axis(points, chosen[:, None, None], axis=1)[:, 0]


def _tempered_points(
    key: PRNGKeyArray, target: Target, centre: Float[Array, " d"], root: Float[Array, "d d"]
) -> Float[Array, "n d"]:
    """Points of chains at p^β that start at the best Gaussian: hot at first, then cooling to β = 1.

    At β they cross valleys of about 1/β nats. They end near a mode, often another one.
    """

    def chain(key: PRNGKeyArray, hottest: Scalar) -> Float[Array, "n d"]:
        cooling = jnp.linspace(0, 1, _COOLING).astype(centre.dtype)
        betas = jnp.append(jnp.full(_HOT, hottest), hottest ** (1 - cooling))

        def transition(carry, inputs):
            place, log_step = carry
            key, beta = inputs
            step = jnp.exp(log_step) / jnp.sqrt(beta)
            tempered = lambda u: evaluate(u).times(beta)  # noqa: E731
            place, rate = hmc_transition(key, tempered, place.times(beta), step)
            return (place.times(1 / beta), log_step + 0.5 * (rate - _ACCEPTANCE)), place.x

        start_key, run_key = jax.random.split(key)
        u = jax.random.normal(start_key, centre.shape, centre.dtype)
        first = evaluate(u), jnp.log(jnp.asarray(_FIRST_STEP, u.dtype))
        return lax.scan(transition, first, (jax.random.split(run_key, len(betas)), betas))[1]

    whitened = target.whitened(centre, root)
    evaluate = lambda u: Place(u, *whitened.log_density_and_score(u))  # noqa: E731
    hottest = jnp.geomspace(*_HOTTEST, CHAINS_PER_START).astype(centre.dtype)
    u = jax.vmap(chain)(jax.random.split(key, len(hottest)), hottest).reshape(-1, len(centre))
    return centre[None] + u @ root.T


def _log_student(
    mean: Float[Array, " d"], root: Float[Array, "d d"], x: Float[Array, "n d"]
) -> Float[Array, " n"]:
    """The log density of a multivariate Student-t, up to a constant that depends on d alone."""
    distance2, log_det = standardised(mean, root, x)
    return -0.5 * (_DEGREES + len(mean)) * jnp.log1p(distance2 / _DEGREES) - log_det


def _distinct(found: Found, known: Points, sds: Float[np.ndarray, " d"]) -> Points:
    """The finite ends that are neither known nor the same as a higher one."""
    kept: list[np.ndarray] = []
    ends, heights = (np.asarray(part, np.float64) for part in (found.points, found.log_densities))
    for i in np.argsort(-heights):
        others = np.concatenate([known, np.reshape(kept, (-1, len(sds)))])
        is_candidate = np.isfinite(heights[i]) and np.isfinite(ends[i]).all()
        if is_candidate and np.all(np.max(np.abs(others - ends[i]) / sds, axis=1) > _SAME_MODE_SDS):
            kept.append(ends[i])
    return np.reshape(kept, (-1, len(sds)))


@one_shot
def _roughness(key: PRNGKeyArray, target: Target, gaussians: Gaussians) -> Float[Array, " m"]:
    """The upper quartile of the change of log p over a thousandth of a standard deviation, in nats.

    Far from the mass, huge terms of a density cancel, and rounding errors look like peaks.
    """
    xi, step = jax.random.normal(key, (2, _NUM_ROUGH, target.dim), gaussians.means.dtype)

    def change(mean: Float[Array, " d"], root: Float[Array, "d d"]) -> Float[Array, ""]:
        here, there = (mean[None] + u @ root.T for u in (xi, xi + 1e-3 * step))
        values = jax.vmap(target.log_density)
        return jnp.quantile(jnp.abs(values(here) - values(there)), 0.75)

    return jax.vmap(change)(gaussians.means, gaussians.roots)


def _joined(
    gaussians: Gaussians, usable: Gaussians, others: Gaussians, real: Bool[np.ndarray, " m"]
) -> Gaussians:
    """Adds the other Gaussians that are real, not far too low, and differ from all before them."""
    held = usable.each()
    total, chosen = max(elbo for *_, elbo in held), []
    for i, (mean, root, elbo) in enumerate(others.each()):
        is_candidate = real[i] and np.isfinite(root).all() and elbo > total - _MAX_GAP
        if is_candidate and min(_divergence(mean, root, m, r) for m, r, _ in held) > _MIN_KL:
            held.append((mean, root, elbo))
            chosen.append(i)
    together = lambda a, b: jnp.asarray(np.concatenate([a, np.asarray(b)[chosen]]))  # noqa: E731
    return jax.tree.map(together, gaussians, others) if chosen else gaussians


def _divergence(
    mean: np.ndarray, root: np.ndarray, other: np.ndarray, other_root: np.ndarray
) -> float:
    """KL(N(mean, root rootᵀ) ‖ N(other, other_root other_rootᵀ))."""
    between, offset = np.linalg.solve(other_root, root), np.linalg.solve(other_root, mean - other)
    log_det = np.sum(np.log(np.diag(other_root)) - np.log(np.diag(root)))
    return float(0.5 * (np.sum(between**2) + offset @ offset - len(mean)) + log_det)
