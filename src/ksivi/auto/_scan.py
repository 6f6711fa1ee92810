"""Looks for modes that the search missed. A narrow mode far from others attracts few paths."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from .._core.hmc import Place, hmc_transition, where_finite
from ..targets import Evaluator
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
    rng: np.random.Generator, evaluate: Evaluator, found: Found, gaussians: Gaussians
) -> tuple[Gaussians, Points]:
    """Adds Gaussians at modes that the first search missed. Returns the ends of the new paths too.

    Each new path starts where the density most exceeds that of the known modes.
    """
    usable, none = gaussians.usable(), np.zeros((0, evaluate.dim))
    if not len(usable.elbos):
        return gaussians, none
    sds = np.linalg.norm(usable.roots[np.argmax(usable.elbos)], axis=1)
    ends = search(evaluate, _new_starts(rng, evaluate, usable, len(found.points)))
    new = _distinct(ends, found.points, sds)
    if not len(new):
        return gaussians, none
    others = batch_and_match(rng, evaluate, new, np.full(len(new), LOCAL_SD))
    # Around the ends themselves too: a Gaussian that starts at a peak of rounding may leave it.
    around = np.broadcast_to(LOCAL_SD * np.diag(sds), others.roots.shape)
    real = _roughness(rng, evaluate, others.means, others.roots) < _MAX_ROUGHNESS
    smooth = _roughness(rng, evaluate, new, around) < _MAX_ROUGHNESS
    return _joined(gaussians, usable, others, real), new[smooth]


def _new_starts(
    rng: np.random.Generator, evaluate: Evaluator, known: Gaussians, num: int
) -> Float[np.ndarray, "m d"]:
    """For each start, the one of many points where the density most exceeds that of known modes."""
    best = int(np.argmax(known.elbos))
    centre, root, dim = known.means[best], known.roots[best], evaluate.dim
    widths = np.geomspace(_NEAREST, FARTHEST, _POINTS_PER_START)[:, None]
    xi = rng.standard_normal((num, _POINTS_PER_START, dim))
    wide = centre + widths * np.linalg.norm(root, axis=1) * xi
    hot, hot_heights = _tempered_points(rng, evaluate, centre, root, num)
    points = np.concatenate([wide, hot], axis=1)
    wide_heights = evaluate.log_density(wide.reshape(-1, dim)).reshape(num, -1)
    heights = np.concatenate([wide_heights, hot_heights], axis=1)
    excess = heights - _log_known(known, points.reshape(-1, dim)).reshape(num, -1)
    chosen = np.argmax(np.where(np.isfinite(excess), excess, -np.inf), axis=1)
    return points[np.arange(num), chosen]


def _tempered_points(
    rng: np.random.Generator,
    evaluate: Evaluator,
    centre: Float[np.ndarray, " d"],
    root: Float[np.ndarray, "d d"],
    num: int,
) -> tuple[Float[np.ndarray, "m n d"], Float[np.ndarray, "m n"]]:
    """Points of chains at p^β that start at the best Gaussian: hot at first, then cooling to β = 1.

    At β they cross valleys of about 1/β nats. They end near a mode, often another one. Returns the
    points for each start, and their log densities.
    """

    @np.errstate(all="ignore")
    def at(u: Points) -> Place:
        log_densities, scores = where_finite(evaluate, centre + u @ root.T)
        return Place(u, log_densities, scores @ root)

    hottest = np.tile(np.geomspace(*_HOTTEST, CHAINS_PER_START), num)
    place = at(rng.standard_normal((len(hottest), evaluate.dim)))
    log_step = np.full(len(hottest), np.log(_FIRST_STEP))
    points, heights = [], []
    for cooled in np.append(np.zeros(_HOT), np.linspace(0, 1, _COOLING)):
        place, rates = _tempered(rng, at, place, hottest ** (1 - cooled), np.exp(log_step))
        log_step += 0.5 * (rates - _ACCEPTANCE)
        points.append(centre + place.x @ root.T)
        heights.append(place.value)
    together = np.stack(points, axis=1).reshape(num, -1, evaluate.dim)
    return together, np.stack(heights, axis=1).reshape(num, -1)


def _tempered(
    rng: np.random.Generator,
    at: Callable[[Points], Place],
    place: Place,
    beta: Float[np.ndarray, " n"],
    step: Float[np.ndarray, " n"],
) -> tuple[Place, Float[np.ndarray, " n"]]:
    """A transition at p^β. The places before and after it are those of p."""
    tempered = lambda u: at(u).times(beta)  # noqa: E731
    new, rates = hmc_transition(rng, tempered, place.times(beta), step / np.sqrt(beta))
    return new.times(1 / beta), rates


def _log_known(known: Gaussians, x: Points) -> Float[np.ndarray, " n"]:
    """The log density of the known modes together."""
    parts = [elbo + _log_student(mean, root, x) for mean, root, elbo in known.each()]
    return np.logaddexp.reduce(parts, axis=0)


def _log_student(
    mean: Float[np.ndarray, " d"], root: Float[np.ndarray, "d d"], x: Points
) -> Float[np.ndarray, " n"]:
    """The log density of a multivariate Student-t, up to a constant that depends on d alone."""
    distance2, log_det = standardised(mean, root, x)
    return -0.5 * (_DEGREES + len(mean)) * np.log1p(distance2 / _DEGREES) - log_det


def _distinct(found: Found, known: Points, sds: Float[np.ndarray, " d"]) -> Points:
    """The finite ends that are neither known nor the same as a higher one."""
    kept: list[np.ndarray] = []
    ends, heights = found.points, found.log_densities
    for i in np.argsort(-heights):
        others = np.concatenate([known, np.reshape(kept, (-1, len(sds)))])
        is_candidate = np.isfinite(heights[i]) and np.isfinite(ends[i]).all()
        if is_candidate and np.all(np.max(np.abs(others - ends[i]) / sds, axis=1) > _SAME_MODE_SDS):
            kept.append(ends[i])
    return np.reshape(kept, (-1, len(sds)))


@np.errstate(all="ignore")
def _roughness(
    rng: np.random.Generator,
    evaluate: Evaluator,
    means: Float[np.ndarray, "m d"],
    roots: Float[np.ndarray, "m d d"],
) -> Float[np.ndarray, " m"]:
    """The upper quartile of the change of log p over a thousandth of a standard deviation, in nats.

    Far from the mass, huge terms of a density cancel, and rounding errors look like peaks.
    """
    xi, step = rng.standard_normal((2, _NUM_ROUGH, evaluate.dim))
    u = np.concatenate([xi, xi + 1e-3 * step])
    x = means[:, None] + u @ np.swapaxes(roots, 1, 2)
    values, _ = where_finite(evaluate, x.reshape(-1, evaluate.dim))
    here, there = np.split(values.reshape(len(means), -1), 2, axis=1)
    return np.quantile(np.abs(here - there), 0.75, axis=1)


def _joined(
    gaussians: Gaussians, usable: Gaussians, others: Gaussians, real: Bool[np.ndarray, " m"]
) -> Gaussians:
    """Adds the other Gaussians that are real, not far too low, and differ from all before them."""
    held = usable.each()
    total = max(elbo for *_, elbo in held)
    chosen: list[int] = []
    for i, (mean, root, elbo) in enumerate(others.each()):
        is_candidate = real[i] and np.isfinite(root).all() and elbo > total - _MAX_GAP
        if is_candidate and min(_divergence(mean, root, m, r) for m, r, _ in held) > _MIN_KL:
            held.append((mean, root, elbo))
            chosen.append(i)
    pairs = zip(gaussians, others, strict=True)
    return Gaussians(*(np.concatenate([one, other[chosen]]) for one, other in pairs))


def _divergence(
    mean: np.ndarray, root: np.ndarray, other: np.ndarray, other_root: np.ndarray
) -> float:
    """KL(N(mean, root rootᵀ) ‖ N(other, other_root other_rootᵀ))."""
    between, offset = np.linalg.solve(other_root, root), np.linalg.solve(other_root, mean - other)
    log_det = np.sum(np.log(np.diag(other_root)) - np.log(np.diag(root)))
    return float(0.5 * (np.sum(between**2) + offset @ offset - len(mean)) + log_det)
