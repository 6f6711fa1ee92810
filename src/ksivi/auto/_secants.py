"""Gaussian approximations by secants: few evaluations, where batch and match would need many."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._core.hmc import Evaluate
from ._gaussians import Gaussians, Points, Values, elbos_of
from ._noise import is_higher, is_lower

Vector = Float[np.ndarray, " d"]
Matrix = Float[np.ndarray, "d d"]
_Place = tuple[Vector, Matrix | Vector, float]
"""Mean, root and log |det root| of a Gaussian."""

_LOG_2PI = float(np.log(2 * np.pi))
_ROUNDS = ((8, 3), (3, 5), (1, 60))
"""How many of the best runs take part in a round, and how many steps each takes in it."""
_FIRST_RADIUS, _LARGEST_RADIUS, _SMALLEST_RADIUS = 0.5, 2.0, 1e-3
_SHRINK, _GROW = 0.3, 2.0
_SAFE_SHRINKING = 5.0
_FLAT = 4
"""Steps without a gain after which a Gaussian is final, up to the averaging."""
_NUM_AVERAGED = 8
_NUM_PAIRS, _NUM_ELBO_PAIRS = 16, 32
"""Pairs of points of a diagonal Gaussian for a step, and pairs of draws for its ELBO."""


@dataclasses.dataclass(frozen=True)
class _Look:
    """A Gaussian, and what points on its shell show of the target.

    In coordinates u, x = mean + root u, the expected score is `drift` and the expected curvature is
    Σᵢ wᵢ vᵢ vᵢᵀ, with the `values` w and the `vectors` v. They are 0 and 1 at the best Gaussian. A
    root that is a vector is diagonal, and so is its curvature; then `vectors` is None.
    """

    mean: Vector
    root: Matrix | Vector
    log_det: float
    elbo: float
    error: float
    drift: Vector
    values: Vector
    vectors: Matrix | None = None

    def step(self, radius: float, rate: float = 1.0) -> tuple[_Place, float]:
        """The next place, and the size of the step.

        On average, the mean changes by at most the radius, in standard deviations. Log widths grow by
        at most the radius. They may shrink by five times as much: a narrow Gaussian is safe.
        """
        low, high = np.exp(-2 * radius), np.exp(2 * _SAFE_SHRINKING * radius)
        found = 1 + rate * (self.values - 1)
        step, values = rate * self._turned(np.maximum(found, low)), np.clip(found, low, high)
        length = float(np.linalg.norm(step)) / len(step) ** 0.5
        step = step * min(1.0, radius / max(length, 1e-30))
        logs = np.log(values)
        size = max(min(length, radius), -logs.min() / 2, logs.max() / (2 * _SAFE_SHRINKING))
        log_det = self.log_det - 0.5 * float(logs.sum())
        if self.vectors is None:
            return (self.mean + self.root * step, self.root / np.sqrt(values), log_det), size
        root = self.root @ self.vectors / np.sqrt(values)
        return (self.mean + self.root @ step, root, log_det), size

    def _turned(self, values: Vector) -> Vector:
        """The drift, divided by the curvature."""
        if self.vectors is None:
            return self.drift / values
        return self.vectors @ ((self.vectors.T @ self.drift) / values)


def secants(rng: np.random.Generator, evaluate: Evaluate, starts: Points, sds: Values) -> Gaussians:
    r"""Gaussians N(μ, R Rᵀ) that maximise the ELBO, from scores at 2d points per step.

    The points are x = μ ± √d R q, for the columns q of a random orthogonal matrix. They lie where
    draws of the Gaussian lie, and d differences of scores give all of the curvature:

        A = −∑ⱼ Rᵀ (s(x₊ⱼ) − s(x₋ⱼ)) qⱼᵀ / (2√d) ≈ E[−∇² log p] in coordinates u, x = μ + R u
        b = the mean of all Rᵀ s(x)             ≈ E[∇ log p]

    At the best Gaussian A = I and b = 0. The step is R′ = R A^(−1/2), μ′ = μ + R A⁻¹ b. It is
    limited to a radius, which shrinks when a step lowers the ELBO. All starts take a few steps, the
    best three go on, and the best one until the ELBO is flat. Its last steps are averaged.
    """
    with np.errstate(all="ignore"):  # away from the mass, log p and its gradient can be anything
        first = [(x, sd * np.eye(len(x))) for x, sd in zip(starts, sds, strict=True)]
        runs = _raced(functools.partial(_dense_look, rng, evaluate), first)
        runs[0].average()
        means = np.stack([run.mean for run in runs])
        roots = np.stack([_triangular(run.root) for run in runs])
        return Gaussians(means, roots, elbos_of(rng, evaluate, means, roots))


class Diagonal(NamedTuple):
    """A diagonal Gaussian, its ELBO by draws, and the standard error of that.

    The ELBO is −∞ if log p is not finite at a draw.
    """

    mean: Vector
    sds: Vector
    elbo: float
    error: float


def mean_field(
    rng: np.random.Generator, evaluate: Evaluate, starts: Points, sds: Values
) -> Diagonal:
    r"""The best diagonal Gaussian.

    As `secants`, with points x = μ ± σ v for few vectors v of random signs, and

        A = diag(a),   a = −the mean of v σ (s(x₊) − s(x₋)) / 2

    All costs are linear in the dimension. Every point is one standard deviation from the mean along
    every coordinate, so two modes at μ ± σ would look like one wide mode. Draws show the space
    between them: by the ELBO from draws, the best starts are chosen.
    """
    with np.errstate(all="ignore"):
        first = [(x, np.full(len(x), sd)) for x, sd in zip(starts, sds, strict=True)]
        look = functools.partial(_diagonal_look, rng, evaluate)
        height = lambda run: _diagonal_elbo(rng, evaluate, run.mean, run.root)[0]  # noqa: E731
        best = _raced(look, first, height)[0]
        best.average()
        return Diagonal(best.mean, best.root, *_diagonal_elbo(rng, evaluate, best.mean, best.root))


def _raced(
    look: Callable[..., _Look | None],
    first: Sequence[tuple[Vector, Matrix | Vector]],
    height: Callable[["_Run"], float] = lambda run: run.elbo,
) -> list["_Run"]:
    """Runs from all starts, the best first. Only the better ones took all their steps.

    **Arguments:**

    - `height`: the number that ranks the runs. Those with equal ones are ranked by their looks.
    """
    runs = [_Run(look, mean, root) for mean, root in first]
    for i, (num_runs, num_steps) in enumerate(_ROUNDS):
        if i and len(runs) > 1:
            runs.sort(key=lambda run: (height(run), run.elbo), reverse=True)
        for run in runs[:num_runs]:
            run.go(num_steps)
    return runs


class _Run:
    """The steps from one start."""

    def __init__(
        self, look: Callable[..., _Look | None], mean: Vector, root: Matrix | Vector
    ) -> None:
        self.look, self.dim = look, len(mean)
        sds = root if root.ndim == 1 else np.diagonal(root)
        self.next: _Place = mean.astype(np.float64), root, float(np.log(sds).sum())
        self.current: _Look | None = None
        self.radius, self.size, self.num_flat = _FIRST_RADIUS, _FIRST_RADIUS, 0

    @property
    def elbo(self) -> float:
        return -np.inf if self.current is None else self.current.elbo

    @property
    def mean(self) -> Vector:
        return self.next[0] if self.current is None else self.current.mean

    @property
    def root(self) -> Matrix | Vector:
        return self.next[1] if self.current is None else self.current.root

    def go(self, most: int) -> None:
        """Takes steps until the ELBO is flat, the radius is tiny, or `most` looks were taken."""
        for _ in range(most):
            if self.num_flat >= _FLAT or self.radius < _SMALLEST_RADIUS:
                return
            self._judge(self.look(*self.next))
            if self.current is not None:
                self.next, self.size = self.current.step(self.radius)

    def _judge(self, new: _Look | None) -> None:
        """Goes on from a look that is not lower beyond noise, else shrinks the radius.

        The next look is compared with the current one, not with the highest of all: the highest
        of many noisy ELBOs is too high.
        """
        if self.current is None:
            if new is None:  # no finite values: nearer to the start there may be some
                mean, root, log_det = self.next
                self.next = mean, 0.1 * root, log_det + self.dim * np.log(0.1)
            self.current = new
            return
        if new is None or is_lower(new, self.current):
            self.radius = _SHRINK * self.size
            return
        self.num_flat = 0 if is_higher(new, self.current) else self.num_flat + 1
        self.current, self.radius = new, min(_GROW * self.radius, _LARGEST_RADIUS)

    def average(self) -> None:
        """Steps at rates 1/2, 1/3, …, which average over their points."""
        for count in range(2, _NUM_AVERAGED + 2):
            if self.current is None:
                return
            following, _ = self.current.step(_FIRST_RADIUS, 1 / count)
            new = self.look(*following)
            if is_lower(new, self.current):
                return
            self.current = new


def _dense_look(
    rng: np.random.Generator, evaluate: Evaluate, mean: Vector, root: Matrix, log_det: float
) -> _Look | None:
    """What 2d points show; None if anything is not finite."""
    dim, radius = len(mean), len(mean) ** 0.5
    q = _orthogonal(rng, dim)
    log_p, scores = evaluate(mean + radius * np.concatenate([q, -q]) @ root.T)
    scores = scores @ root
    elbo = float(log_p.mean()) + log_det + 0.5 * dim * (1 + _LOG_2PI)
    if not (np.isfinite(scores).all() and np.isfinite(elbo)):
        return None
    curvature = q.T @ (scores[dim:] - scores[:dim]) / (2 * radius)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    error = float(log_p.std()) / (2 * dim) ** 0.5
    return _Look(mean, root, log_det, elbo, error, scores.mean(axis=0), values, vectors)


def _diagonal_look(
    rng: np.random.Generator, evaluate: Evaluate, mean: Vector, sds: Vector, log_det: float
) -> _Look | None:
    """What a few pairs of points show; None if anything is not finite."""
    signs = np.where(rng.random((_NUM_PAIRS, len(mean))) < 0.5, -1.0, 1.0)
    log_p, scores = evaluate(mean + np.concatenate([signs, -signs]) * sds)
    scores = scores * sds
    elbo = float(log_p.mean()) + log_det + 0.5 * len(mean) * (1 + _LOG_2PI)
    if not (np.isfinite(scores).all() and np.isfinite(elbo)):
        return None
    values = np.mean(signs * (scores[_NUM_PAIRS:] - scores[:_NUM_PAIRS]), axis=0) / 2
    error = float(log_p.std()) / (2 * _NUM_PAIRS) ** 0.5
    return _Look(mean, sds, log_det, elbo, error, scores.mean(axis=0), values)


def _diagonal_elbo(
    rng: np.random.Generator, evaluate: Evaluate, mean: Vector, sds: Vector
) -> tuple[float, float]:
    """E[log p − log q] by draws of a diagonal Gaussian in pairs μ ± σ ξ, and its standard error."""
    xi = rng.standard_normal((_NUM_ELBO_PAIRS, len(mean)))
    log_p, _ = evaluate(mean + np.concatenate([xi, -xi]) * sds)
    log_q = -np.sum(0.5 * xi**2 + np.log(sds) + 0.5 * _LOG_2PI, axis=1)
    pairs = (log_p[:_NUM_ELBO_PAIRS] + log_p[_NUM_ELBO_PAIRS:]) / 2 - log_q
    if not np.isfinite(pairs).all():
        return -np.inf, np.inf
    return float(pairs.mean()), float(pairs.std(ddof=1)) / _NUM_ELBO_PAIRS**0.5


def _orthogonal(rng: np.random.Generator, dim: int) -> Matrix:
    """A random orthogonal matrix: a cosine transform of random signs.

    No entry is larger than √(2/d). So along every coordinate of u, all points lie within √2
    standard deviations. Those of a uniformly random matrix reach three or four.
    """
    from scipy.fft import dct  # SciPy takes longer to import than this library

    signs = np.where(rng.random(dim) < 0.5, -1.0, 1.0)
    return dct(np.diag(signs), axis=0, norm="ortho")


def _triangular(root: Matrix) -> Matrix:
    """The lower triangular root of the same covariance."""
    upper = np.linalg.qr(root.T, mode="r")
    return (np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None] * upper).T
