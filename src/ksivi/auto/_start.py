"""Where a fit starts: modes, Gaussians around them, and rough draws if one Gaussian is not enough."""

import dataclasses
import math
import time

import numpy as np
from jaxtyping import Float

from .._core.mixtures import Mixture, root_of
from .._core.numerics import log_mean_weight, resampled, truncated_weights
from ..results import Doubt, FitDiagnostics, Posterior
from ..targets import Evaluator, OutOfTime
from ._anneal import Annealed, anneal, begin
from ._em import fit_mixture
from ._gaussians import LEAST_MASS, LOCAL_SD, Gaussians, batch_and_match, standardised
from ._modes import Modes, modes_of, separate
from ._scan import CHAINS_PER_START, FARTHEST, with_far_modes
from ._search import Found, distinct, first_starts, search
from ._secants import secants
from ._tails import improper_from

Points = Float[np.ndarray, "n d"]

_MIN_GAIN = 0.1
"""A mixture is annealed if the evidence is above an ELBO by more nats per coordinate: that of the
best Gaussian, or that of an earlier fit."""
_ROUGH_DRAWS = 3_000
_NUM_EARLY = 4
_SEARCH_SHARE = 0.2
"""There is no scan for further modes if the search took more than this share of the time."""
_SECANT_DIM = 50
"""From here on, Gaussians are fitted by secants."""
_ORIGIN_SDS = (0.1, 1.0)
"""Standard deviations of the Gaussians that start at the origin."""


@dataclasses.dataclass(frozen=True)
class Start:
    """What the search found.

    **Attributes:**

    - `gaussians`: all Gaussians that were fitted.
    - `best`: the best of them, as a mixture of one.
    - `elbo`, `log_evidence`: its ELBO, and the log evidence by the rough draws.
    - `draws`: rough draws of the target, if one Gaussian is not enough.
    - `known`: the mixture of an earlier fit, if it nearly fits this target too.
    - `modes`: the separate modes that were found, with their shares of the mass.
    - `improper`: the doubt that the posterior is improper, if it shows from early points of the
        search. Draws of an improper posterior may lie so far out that nothing shows from there.
    - `num_paths`: the number of paths of the search.
    - `scanned`: whether it also looked for modes far from the first ones.
    """

    gaussians: Gaussians
    best: Mixture
    elbo: float
    log_evidence: float
    draws: Points | None = None
    known: Mixture | None = None
    modes: Modes | None = None
    improper: Doubt | None = None
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


def find_start(
    rng: np.random.Generator, evaluate: Evaluator, num_starts: int, scanned: bool
) -> Start:
    """Searches for modes, fits Gaussians around them, and anneals their mixture if need be."""
    began = time.perf_counter()
    found = search(evaluate, first_starts(rng, num_starts, evaluate.dim))
    gaussians, ends = _gaussians(rng, evaluate, *candidates(evaluate, found)), found.points
    scanned = scanned and time.perf_counter() < began + _SEARCH_SHARE * (evaluate.deadline - began)
    if scanned:
        gaussians, more = with_far_modes(rng, evaluate, found, gaussians)
        ends = np.concatenate([ends, more])
    start = choose_start(rng, evaluate, gaussians, ends)
    if start is None:
        raise RuntimeError(why_no_start(evaluate, found))
    num_paths = num_starts * (1 + scanned)
    try:
        improper = improper_from(evaluate, _early(found))
    except OutOfTime:  # the checks say so
        improper = None
    return dataclasses.replace(start, improper=improper, num_paths=num_paths, scanned=scanned)


def _gaussians(
    rng: np.random.Generator, evaluate: Evaluator, starts: Points, sds: Float[np.ndarray, " m"]
) -> Gaussians:
    """A batch for batch and match has 2d points too, but tells less of the curvature."""
    fitted = batch_and_match if evaluate.dim < _SECANT_DIM else secants
    return fitted(rng, evaluate, starts, sds)


def start_from(rng: np.random.Generator, evaluate: Evaluator, init: Posterior) -> Start:
    """A start from an earlier posterior. Its draws are annealed to the target if that is needed.

    There is no search.
    """
    mixture = init.on_host()
    if not isinstance(mixture, Mixture):
        mixture = fit_mixture(rng, init.host_draws(rng, _ROUGH_DRAWS))
    elbos = np.log(np.maximum(mixture.shares, LEAST_MASS))  # the masses, up to a common factor
    particles = begin(rng, evaluate, mixture, _ROUGH_DRAWS)
    log_ratio, log_evidence = particles.log_ratio, log_mean_weight(particles.log_ratio)
    is_everywhere = np.isfinite(log_ratio).all()
    if is_everywhere and log_evidence - log_ratio.mean() < _MIN_GAIN * evaluate.dim:
        draws, known = particles.x[resampled(rng, truncated_weights(log_ratio))], mixture
    elif (annealed := anneal(rng, evaluate, mixture, particles)) is not None:
        draws, known, log_evidence = annealed.draws, None, annealed.log_evidence
    else:
        raise ValueError(
            "init must have draws at which the target's log density is finite, got none"
        )
    gaussians = Gaussians(mixture.means, mixture.roots, elbos)
    best = Mixture(np.ones(1), draws.mean(axis=0)[None], root_of(draws)[None])
    return Start(gaussians, best, math.nan, log_evidence, draws, known)


def why_no_start(evaluate: Evaluator, found: Found) -> str:
    """The reason why no Gaussian could be fitted."""
    if not np.isfinite(found.log_densities).any():
        return (
            "fit found no point with a finite log density. It must be finite near the origin: "
            "write the model on an unconstrained scale, with supports= or a change of variables"
        )
    doubt = improper_from(evaluate, _early(found))
    return (
        str(doubt)
        if doubt
        else (
            "fit found no Gaussian whose draws all have a finite log density. Give every parameter a "
            "proper prior, and write the model on an unconstrained scale, with supports= or a change "
            "of variables, so that the log density is finite everywhere around the mass"
        )
    )


def _early(found: Found) -> Points:
    """Early points of the highest paths. Their ends may be at infinity."""
    heights = found.log_densities
    highest = np.argsort(-np.where(np.isnan(heights), -np.inf, heights))[:_NUM_EARLY]
    return found.early[highest]


def choose_start(
    rng: np.random.Generator, evaluate: Evaluator, gaussians: Gaussians, ends: Points
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
    places = separate(evaluate, np.concatenate([ends, usable.means[best : best + 1]]))
    mixture = _covering(usable, gaussians, places).mixture()
    particles = begin(rng, evaluate, mixture, _ROUGH_DRAWS)
    log_evidence, elbo = log_mean_weight(particles.log_ratio), float(usable.elbos[best])
    one = Mixture(np.ones(1), usable.means[best : best + 1], usable.roots[best : best + 1])
    start = Start(gaussians, one, elbo, log_evidence)
    if log_evidence - elbo < _MIN_GAIN * evaluate.dim and len(places) == 1:
        return start
    try:
        annealed = anneal(rng, evaluate, mixture, particles)
        return start if annealed is None else _annealed(start, evaluate, mixture, places, annealed)
    except OutOfTime:
        return start


def _annealed(
    start: Start, evaluate: Evaluator, mixture: Mixture, places: Points, annealed: Annealed
) -> Start:
    modes = modes_of(evaluate, places, mixture.means, annealed)
    evidence = annealed.log_evidence
    return dataclasses.replace(start, log_evidence=evidence, draws=annealed.draws, modes=modes)


def _covering(usable: Gaussians, gaussians: Gaussians, places: Points) -> Gaussians:
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
    return Gaussians(*(np.concatenate(pair) for pair in zip(usable, parts, strict=True)))


def _covers(gaussian: tuple[np.ndarray, np.ndarray, float], place: np.ndarray) -> bool:
    """Whether a place lies within the bulk of a Gaussian, and the Gaussian is not far too wide."""
    mean, root, _ = gaussian
    distance2, _ = standardised(mean, root, place[None])
    return bool(distance2[0] < len(place) + 4 * np.sqrt(2 * len(place)))


def candidates(evaluate: Evaluator, found: Found) -> tuple[Points, Float[np.ndarray, " m"]]:
    """Means and standard deviations to start Gaussians from.

    The means are the distinct ends of the paths, early points of some paths, and the origin.
    """
    ends = found.points[distinct(found.points, found.log_densities, evaluate)]
    early, dim = found.early[: len(found.early) // 2], found.points.shape[1]
    origin = np.zeros((len(_ORIGIN_SDS), dim))
    points = np.concatenate([ends, early, origin])
    return points, np.array([LOCAL_SD] * (len(ends) + len(early)) + list(_ORIGIN_SDS))
