"""The start of the training: coordinates, and rough draws if one Gaussian is not enough."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.numerics import log_mean_weight
from ..results import FitDiagnostics
from ..targets import Target
from ._anneal import Annealed, anneal, begin
from ._gaussians import LOCAL_SD, Gaussians, batch_and_match
from ._modes import Modes, modes_of, root_of, separate
from ._recipe import Recipe
from ._scan import CHAINS_PER_START, FARTHEST, with_far_modes
from ._search import Found, first_starts, search
from ._tails import improper_from

_MIN_GAIN = 0.1
"""The mixture is used if it beats its best Gaussian by more than this, in nats."""
_ROUGH_DRAWS = 3_000
_NUM_EARLY = 4
_ORIGIN_SDS = (0.1, 1.0)
"""Standard deviations of the Gaussians that start at the origin."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Coordinates for the training, and rough draws of the target if one Gaussian is not enough.

    **Attributes:**

    - `target`: the target in whitened coordinates.
    - `draws`: rough draws of the target, in these coordinates.
    - `elbo`, `log_evidence`: ELBO of the best Gaussian, and log evidence by the rough draws.
    - `modes`: the separate modes that were found, with their shares of the mass.
    - `early`: points on the highest paths of the search, before their ends.
    - `num_paths`: the number of paths of the search.
    - `scanned`: whether it also looked for modes far from the first ones.
    """

    target: Target
    draws: Float[Array, "n d"] | None
    elbo: float
    log_evidence: float
    modes: Modes | None = None
    early: Float[np.ndarray, "n d"] | None = None
    num_paths: int = 0
    scanned: bool = False

    def noted(self, diagnostics: FitDiagnostics) -> FitDiagnostics:
        """The diagnostics, with what the search found and how far it looked."""
        return dataclasses.replace(
            diagnostics,
            num_modes=1 if self.modes is None else len(self.modes.places),
            num_paths=self.num_paths,
            num_tempered=self.num_paths // 2 * CHAINS_PER_START if self.scanned else 0,
            reach=FARTHEST if self.scanned else math.nan,
        )


def find_start(key: PRNGKeyArray, target: Target, recipe: Recipe) -> tuple[Start, Gaussians]:
    """Searches for modes, fits Gaussians around them, and chooses the start of the training."""
    search_key, match_key, choose_key = jax.random.split(key, 3)
    found = search(target, first_starts(search_key, recipe.num_starts(target.dim), target.dim))
    gaussians = batch_and_match(match_key, target, *_candidates(found))
    ends = np.asarray(found.points, np.float64)
    if recipe.scans(target.dim):
        gaussians, more = with_far_modes(jax.random.fold_in(key, 3), target, found, gaussians)
        ends = np.concatenate([ends, more])
    start = choose_start(choose_key, target, gaussians, ends)
    if start is None:
        raise RuntimeError(_why_no_start(target, found))
    scanned, num_paths = recipe.scans(target.dim), len(found.points)
    num_paths *= 1 + scanned
    start = dataclasses.replace(start, early=_early(found), num_paths=num_paths, scanned=scanned)
    return start, gaussians


def _why_no_start(target: Target, found: Found) -> str:
    """The reason why no Gaussian could be fitted."""
    heights = np.asarray(found.log_densities, np.float64)
    if not np.isfinite(heights).any():
        return (
            "fit found no point with a finite log density. It must be finite near the origin: "
            "write the model on an unconstrained scale, with supports= or a change of variables"
        )
    doubt = improper_from(target, _early(found))
    return doubt or (
        "fit found no Gaussian whose draws all have a finite log density. The log density must be "
        "finite everywhere around the mass, and the posterior must be proper"
    )


def _early(found: Found) -> Float[np.ndarray, "n d"]:
    """Early points of the highest paths. Their ends may be at infinity."""
    heights = np.asarray(found.log_densities, np.float64)
    highest = np.argsort(-np.where(np.isnan(heights), -np.inf, heights))[:_NUM_EARLY]
    return np.asarray(found.early, np.float64)[highest]


def choose_start(
    key: PRNGKeyArray, target: Target, gaussians: Gaussians, ends: Float[np.ndarray, "m d"]
) -> Start | None:
    """A start from the best Gaussian, or from annealed draws; None if no Gaussian is usable.

    **Arguments:**

    - `ends`: the ends of all paths. A mode that is no Gaussian may have a poor Gaussian. It is
        annealed like the others, so that its mass is known.
    """
    usable = gaussians.usable()
    if not len(usable.elbos):
        return None
    best = int(np.argmax(usable.elbos))
    elbo = float(usable.elbos[best])
    places = separate(target, np.concatenate([ends, np.asarray(usable.means[best : best + 1])]))
    mixture = _covering(usable, gaussians, places)
    begin_key, anneal_key = jax.random.split(key)
    particles = begin(begin_key, target, mixture, _ROUGH_DRAWS)
    log_evidence = log_mean_weight(particles.log_ratio)
    if log_evidence - elbo >= _MIN_GAIN or len(places) > 1:
        annealed = anneal(anneal_key, target, mixture, particles)
        if annealed is not None:
            return _from_particles(target, mixture, places, annealed, elbo)
    whitened = target.whitened(usable.means[best], usable.roots[best])
    return Start(whitened, None, elbo, log_evidence)


def _from_particles(
    target: Target,
    mixture: Gaussians,
    places: Float[np.ndarray, "k d"],
    annealed: Annealed,
    elbo: float,
) -> Start:
    modes = modes_of(target, places, mixture, annealed)
    loc, root = annealed.draws.mean(axis=0), root_of(annealed.draws)
    u = np.linalg.solve(root, (annealed.draws - loc).T).T
    dtype = mixture.means.dtype
    whitened = target.whitened(jnp.asarray(loc, dtype), jnp.asarray(root, dtype))
    return Start(whitened, jnp.asarray(u, dtype), elbo, annealed.log_evidence, modes)


def _covering(
    usable: Gaussians, gaussians: Gaussians, places: Float[np.ndarray, "k d"]
) -> Gaussians:
    """The usable Gaussians, and one more around every place that none of them covers."""
    added: list[tuple[np.ndarray, np.ndarray, float]] = []
    others = [one for one in gaussians.each() if np.isfinite(one[1]).all()]
    for place in places:
        if not any(_covers(one, place) for one in [*usable.each(), *added]):
            local = (place, LOCAL_SD * np.eye(len(place)), -np.inf)
            added.append(next((one for one in others if _covers(one, place)), local))
    if not added:
        return usable
    parts = [np.stack([np.asarray(part) for part in one]) for one in zip(*added, strict=True)]
    join = lambda a, b: jnp.concatenate([a, jnp.asarray(b, a.dtype)])  # noqa: E731
    return Gaussians(*(join(a, b) for a, b in zip(usable, parts, strict=True)))


def _covers(gaussian: tuple[np.ndarray, np.ndarray, float], place: np.ndarray) -> bool:
    """Whether a place lies within the bulk of a Gaussian, and the Gaussian is not far too wide."""
    mean, root, _ = gaussian
    distance2 = np.sum(np.linalg.solve(root, place - mean) ** 2)
    return bool(distance2 < len(place) + 4 * np.sqrt(2 * len(place)))


def _candidates(found: Found) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """Means and standard deviations to start Gaussians from.

    The means are the ends of the paths, early points of some paths, and the origin.
    """
    num, dim = found.points.shape
    ends = jnp.where(jnp.isfinite(found.log_densities)[:, None], found.points, 0)
    origin = jnp.zeros((len(_ORIGIN_SDS), dim), ends.dtype)
    points = jnp.concatenate([ends, found.early[: num // 2], origin])
    return points, jnp.asarray([LOCAL_SD] * (num + num // 2) + list(_ORIGIN_SDS), ends.dtype)
