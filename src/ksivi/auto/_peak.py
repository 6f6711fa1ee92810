"""The mode of a posterior with many rows: by a search on some rows, then by passes over all."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._core.roots import DenseRoot, Root, diagonal_root
from ..results import Doubt
from ..targets import Evaluator, Passes
from ._gaussians import LOCAL_SD
from ._modes import are_separate
from ._search import distinct, first_starts, search
from ._secants import mean_field
from ._start import candidates, why_no_start
from ._tails import improper_from
from ._walks import rounded

Vector = Float[np.ndarray, " d"]
Matrix = Float[np.ndarray, "d d"]

_MOST_STEPS, _MOST_HALVINGS = 20, 12
_CONVERGED = 1e-2
"""Newton's method stops where the next step is shorter, in squared standard deviations."""
_WORK_ON_THE_WAY, _WORK, _FEWEST_ROWS = 2**32, 2**36, 2**14
"""A Hessian uses all rows if rows × dim² is below this, on the way and at the mode. Rare columns
need all rows: with a few of theirs, Newton's method is slow."""
_FLATTEST = 1e-10
"""The smallest curvature, as a share of the largest one."""
_MOST_ENDS = 4
_MOST_DIM = 2_000
"""Above this dimension there are no Hessians."""
_FEW_STARTS = 4
"""The number of paths in many dimensions."""
_ROUNDING = 1e-2
"""Losses in nats that can be errors of rounding."""
_ON_THE_WAY = np.linspace(0, 1, 9)
"""Parts of the way from an end to a peak at which heights are compared."""
_NEAR_MASS = 4.0
"""Modes whose log mass is lower by more nats do not count."""


@dataclasses.dataclass(frozen=True)
class Peak:
    """A mode, and the Gaussian of Laplace's approximation around it.

    **Attributes:**

    - `score`, `hessian`: of the log density at the mode, over all rows.
    - `root`: a root of the covariance (−H)⁻¹.

    In more than 150 dimensions the point is a mean, not a mode. In more than 2,000 dimensions there
    is no Hessian, and the covariance is diagonal.
    """

    point: Vector
    score: Vector
    root: Root
    hessian: Matrix | None = None

    def draws(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n d"]:
        """Draws of the Gaussian, as single precision has them."""
        return rounded(self.point + self.root.times(rng.standard_normal((n, len(self.point)))))


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The highest mode, by its mass, and what the search found besides.

    **Attributes:**

    - `num_rivals`: the number of other modes that may have as much mass.
    - `num_paths`: the number of paths of the search.
    - `improper`: the doubt that the posterior is improper.
    """

    best: Peak
    num_rivals: int
    num_paths: int
    improper: Doubt | None = None


def peaks_from_search(
    rng: np.random.Generator, some: Evaluator, passes: Passes, beta: float, num_starts: int
) -> Peaks:
    """Searches on some rows, and polishes the highest ends of the paths on all rows."""
    found = search(some, first_starts(rng, num_starts, some.dim))
    ends = found.points[distinct(found.points, found.log_densities, some)][:_MOST_ENDS]
    if not len(ends):
        passes.require_finite(np.zeros(some.dim))
        raise RuntimeError(why_no_start(some, found))
    improper = improper_from(some, found.early[np.argsort(-found.log_densities)[:1]])
    first = peak_from(passes, ends[0], beta)
    others = [peak_from(passes, end, beta) for end in _elsewhere(passes, first, ends[1:])]
    best, num_rivals = _highest(passes, _apart(passes, [first, *others]), beta)
    return Peaks(best, num_rivals, num_starts, improper)


def has_hessian(dim: int) -> bool:
    """Whether matrices of dim × dim numbers are affordable."""
    return dim <= _MOST_DIM


def centre_from_search(
    rng: np.random.Generator, some: Evaluator, passes: Passes, beta: float
) -> Peaks:
    """In many dimensions, the mean of a diagonal Gaussian: first on some rows, then on all.

    There a mode can be far from all mass.
    """
    found = search(some, first_starts(rng, _FEW_STARTS, some.dim))
    first = mean_field(rng, some, *candidates(some, found)).mean

    def on_all_rows(x: Float[np.ndarray, "k d"]) -> tuple[Vector, Float[np.ndarray, "k d"]]:
        gains, scores = passes.differences(rounded(x), first)
        return beta * gains, beta * scores

    best = mean_field(rng, on_all_rows, first[None], np.array([LOCAL_SD]))
    if not np.isfinite(best.elbo):
        passes.require_finite(np.zeros(some.dim))
        raise RuntimeError(why_no_start(some, found))
    return Peaks(centre_at(passes, best.mean, best.sds, beta), 0, _FEW_STARTS)


def centre_at(passes: Passes, mean: Vector, sds: Vector, beta: float) -> Peak:
    """The Gaussian around a mean, with the curvature there if it is affordable."""
    x = rounded(mean)
    score = _score(passes, x)
    if len(x) > _MOST_DIM:
        return Peak(x, score, diagonal_root(sds))
    return peak_at(passes, x, score, beta)


def _score(passes: Passes, x: Vector) -> Vector:
    score = passes.differences(x[None], x)[1][0]
    if not np.isfinite(score).all():
        passes.require_finite(x)
    return score


def peak_from(passes: Passes, start: Vector, beta: float) -> Peak:
    """The mode that Newton's method reaches from a start, by passes over all rows."""
    x = rounded(start)
    score = _score(passes, x)
    for _ in range(_MOST_STEPS):
        step = _newton(_hessian(passes, x, _WORK_ON_THE_WAY), score)
        if beta * score @ step < _CONVERGED:
            break
        risen = _risen(passes, x, step)
        if risen is None:
            break
        x, score = risen
    return peak_at(passes, x, score, beta)


def peak_at(passes: Passes, x: Vector, score: Vector, beta: float) -> Peak:
    """The Gaussian around a point."""
    hessian = _hessian(passes, x, _WORK)
    values, vectors = _curvatures(beta * hessian)
    covariance = (vectors / values) @ vectors.T
    root = np.linalg.cholesky((covariance + covariance.T) / 2)
    return Peak(x, score, DenseRoot(root), hessian)


def _hessian(passes: Passes, x: Vector, work: float) -> Matrix:
    return passes.hessian(x, max(_FEWEST_ROWS, work / len(x) ** 2))


def _risen(passes: Passes, x: Vector, step: Vector) -> tuple[Vector, Vector] | None:
    """The first point x + step, x + step/2, … at which the log density is higher."""
    for share in 0.5 ** np.arange(_MOST_HALVINGS):
        new = rounded(x + share * step)
        gain, score = passes.differences(new[None], x)
        if np.isfinite(gain[0]) and np.isfinite(score).all() and gain[0] > -_ROUNDING:
            return new, score[0]
    return None


def _newton(hessian: Matrix, score: Vector) -> Vector:
    """|H|⁻¹ g: an ascent, also where the log density is not concave."""
    values, vectors = _curvatures(hessian)
    return vectors @ ((score @ vectors) / values)


def _curvatures(hessian: Matrix) -> tuple[Vector, Matrix]:
    """|eigenvalues| of −H, with a floor, and the eigenvectors."""
    values, vectors = np.linalg.eigh(-hessian)
    values = np.abs(values)
    return np.maximum(values, max(_FLATTEST * values.max(), 1e-30)), vectors


def _elsewhere(
    passes: Passes, peak: Peak, ends: Float[np.ndarray, "k d"]
) -> Float[np.ndarray, "n d"]:
    """The ends from which the log density does not rise all the way to a peak."""
    if not len(ends):
        return ends
    ways = ends[:, None] + _ON_THE_WAY[:, None] * (peak.point - ends)[:, None]
    heights, _ = passes.differences(rounded(ways.reshape(-1, len(peak.point))), peak.point)
    heights = heights.reshape(len(ends), -1)
    return ends[~np.all(np.diff(heights, axis=1) > -_ROUNDING, axis=1)]


def _apart(passes: Passes, peaks: list[Peak]) -> list[Peak]:
    """The peaks between which the log density falls."""
    first = peaks[0].point
    height = lambda x: passes.differences(rounded(x), first)[0]  # noqa: E731
    kept: list[Peak] = []
    for peak in peaks:
        if all(are_separate(height, peak.point, other.point) for other in kept):
            kept.append(peak)
    return kept


def _highest(passes: Passes, peaks: list[Peak], beta: float) -> tuple[Peak, int]:
    """The peak with the largest mass, and how many others have about as much."""
    if len(peaks) == 1:
        return peaks[0], 0
    points = np.stack([peak.point for peak in peaks])
    heights, _ = passes.differences(points, points[0])
    log_mass = beta * heights + [float(peak.root.log_det()) for peak in peaks]
    best = int(np.nanargmax(log_mass))
    return peaks[best], int(np.sum(log_mass > log_mass[best] - _NEAR_MASS)) - 1
