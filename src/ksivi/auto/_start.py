"""The start of the training: coordinates, and rough draws if one Gaussian is not enough."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.numerics import log_mean_weight
from ..targets import Target
from ._anneal import Annealed, anneal, begin
from ._gaussians import LOCAL_SD, Gaussians
from ._modes import Modes, modes_of, root_of, separate

_MIN_GAIN = 0.1
"""The mixture is used if it beats its best Gaussian by more than this, in nats."""
_ROUGH_DRAWS = 3_000


@dataclasses.dataclass(frozen=True)
class Start:
    """Coordinates for the training, and rough draws of the target if one Gaussian is not enough.

    **Attributes:**

    - `target`: the target in whitened coordinates.
    - `draws`: rough draws of the target, in these coordinates.
    - `elbo`, `log_evidence`: ELBO of the best Gaussian, and log evidence by the rough draws.
    - `modes`: the separate modes that were found, with their shares of the mass.
    - `early`: a point on the highest path of the search, before its end.
    """

    target: Target
    draws: Float[Array, "n d"] | None
    elbo: float
    log_evidence: float
    modes: Modes | None = None
    early: Float[np.ndarray, " d"] | None = None


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
