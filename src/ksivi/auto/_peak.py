"""The mode of a posterior with many rows: by a search on some rows, then by passes over all."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ..targets import Evaluator, Passes
from ._modes import are_separate
from ._paths import lbfgs, places
from ._search import distinct, first_starts, search
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
_MOST_DIM, _MOST_PASSES = 2_000, 40
"""Above this dimension L-BFGS takes the place of Newton's method, with so many passes."""
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
    - `root`: a lower triangular root of the covariance (−H)⁻¹.

    In more than 2,000 dimensions there are neither a Hessian nor a root.
    """

    point: Vector
    score: Vector
    hessian: Matrix | None = None
    root: Matrix | None = None

    @property
    def log_volume(self) -> float:
        assert self.root is not None
        return float(np.log(np.diag(self.root)).sum())


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
    improper: str | None = None


def peaks_from_search(
    rng: np.random.Generator, some: Evaluator, passes: Passes, beta: float, num_starts: int
) -> Peaks:
    """Searches on some rows, and polishes the highest ends of the paths on all rows."""
    found = search(some, first_starts(rng, num_starts, some.dim))
    ends = found.points[distinct(found.points, found.log_densities, some)][:_MOST_ENDS]
    if not len(ends):
        raise RuntimeError(
            "fit found no point with a finite log density. It must be finite near the origin: "
            "write the model on an unconstrained scale, with supports= or a change of variables"
        )
    if not has_hessian(some.dim):
        return Peaks(_without_hessian(passes, ends[:1]), 0, num_starts)
    improper = improper_from(some, found.early[np.argsort(-found.log_densities)[:1]])
    first = peak_from(passes, ends[0], beta)
    others = [peak_from(passes, end, beta) for end in _elsewhere(passes, first, ends[1:])]
    best, num_rivals = _highest(passes, _apart(passes, [first, *others]), beta)
    return Peaks(best, num_rivals, num_starts, improper)


def has_hessian(dim: int) -> bool:
    """Whether matrices of dim × dim numbers are affordable."""
    return dim <= _MOST_DIM


def _without_hessian(passes: Passes, ends: Float[np.ndarray, "1 d"]) -> Peak:
    """The end of a path of L-BFGS by passes over all rows."""
    first = rounded(ends)
    climb = lambda x: passes.differences(x, first[0])  # noqa: E731
    with np.errstate(all="ignore"):  # a path may try points where log p is not finite
        best = lbfgs(climb, places(climb, first), _MOST_PASSES, 0)[0]
    return Peak(best.x[0], -best.gradients[0])


def peak_from(passes: Passes, start: Vector, beta: float) -> Peak:
    """The mode that Newton's method reaches from a start, by passes over all rows."""
    x = rounded(start)
    score = passes.differences(x[None], x)[1][0]
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
    return Peak(x, score, hessian, np.linalg.cholesky((covariance + covariance.T) / 2))


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
    log_mass = beta * heights + [peak.log_volume for peak in peaks]
    best = int(np.nanargmax(log_mass))
    return peaks[best], int(np.sum(log_mass > log_mass[best] - _NEAR_MASS)) - 1
