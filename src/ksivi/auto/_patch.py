"""Gaussians of low rank plus diagonal, by batch and match in time and memory linear in d."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._core.hmc import Evaluate
from .._core.roots import LowRankRoot
from ._noise import is_lower

Vector = Float[np.ndarray, " d"]
Points = Float[np.ndarray, "n d"]
Columns = Float[np.ndarray, "d k"]

_LOG_2PI = float(np.log(2 * np.pi))
_RANK, _BATCH = 32, 64
_MOST_UPDATES, _WINDOW, _GAIN = 400, 20, 0.5
"""Updates go on while the ELBO rises by more nats in a window of them."""
_PATCHES = 5
"""Steps of EM per update. The next update goes on from their result."""
_SMALLEST = 1e-12
_SHRINK, _GROW = 0.1, 3.0


class LowRank(NamedTuple):
    """N(μ, Ψ + Λ Λᵀ), with a diagonal Ψ."""

    mean: Vector
    diagonal: Vector
    factors: Columns

    def root(self) -> LowRankRoot:
        """A root of the covariance: Ψ^½ (I + P (S − 1) Pᵀ), from the SVD of Ψ^−½ Λ."""
        sd = np.sqrt(self.diagonal)
        vectors, singular, _ = np.linalg.svd(self.factors / sd[:, None], full_matrices=False)
        return LowRankRoot(sd, vectors, np.sqrt(1 + singular**2))

    @property
    def is_good(self) -> bool:
        """Whether all numbers are finite, and the covariance is positive."""
        return all(np.isfinite(part).all() for part in self) and bool((self.diagonal > 0).all())

    def look(self, rng: np.random.Generator, evaluate: Evaluate) -> "Look":
        """A batch of draws, with their scores and the ELBO."""
        root, xi = self.root(), rng.standard_normal((_BATCH, len(self.mean)))
        x = self.mean + root.times(xi)
        log_p, scores = evaluate(x)
        log_ratio = log_p + 0.5 * np.sum(xi**2 + _LOG_2PI, axis=1) + root.log_det()
        elbo, error = float(np.mean(log_ratio)), float(np.std(log_ratio)) / _BATCH**0.5
        return Look(self, x, scores, elbo if np.isfinite(scores).all() else -np.inf, error)


class Look(NamedTuple):
    """A Gaussian, and a batch of its draws."""

    fit: LowRank
    x: Points
    scores: Points
    elbo: float
    error: float

    def updated(self, weight: float) -> LowRank:
        """The Gaussian after one update of batch and match with this λ, and its projection."""
        matched, mean = _matched(self.fit, self.x, self.scores, weight)
        return LowRank(mean, *matched.patched(self.fit.diagonal, self.fit.factors))


class _Matched(NamedTuple):
    """The covariance diag(ψ) + W Wᵀ − M Mᵀ of an update."""

    diagonal: Vector
    plus: Columns
    minus: Columns

    def times(self, x: Columns) -> Columns:
        """The covariance times some columns."""
        outer = self.plus @ (self.plus.T @ x) - self.minus @ (self.minus.T @ x)
        return self.diagonal[:, None] * x + outer

    def variances(self) -> Vector:
        return self.diagonal + np.sum(self.plus**2, axis=1) - np.sum(self.minus**2, axis=1)

    def patched(self, diagonal: Vector, factors: Columns) -> tuple[Vector, Columns]:
        """Ψ and Λ of the nearest Gaussian of low rank, by EM for factor analysis from these."""
        variances = np.maximum(self.variances(), _SMALLEST)
        for _ in range(_PATCHES):
            scaled = factors / diagonal[:, None]
            inner = np.linalg.inv(np.eye(factors.shape[1]) + factors.T @ scaled)
            beta = scaled @ inner
            product = self.times(beta)
            factors = product @ np.linalg.inv(inner + beta.T @ product)
            explained = np.sum(factors * product, axis=1)
            diagonal = np.maximum(variances - explained, 1e-4 * variances)
        return diagonal, factors


def low_rank_gaussian(
    rng: np.random.Generator, evaluate: Evaluate, mean: Vector, sds: Vector
) -> Look | None:
    r"""The Gaussian N(μ, Ψ + Λ Λᵀ) that minimises a score-based divergence to the target.

    The update of batch and match is the sum of a diagonal and few columns,

        Σ′ = V − V Q S² Qᵀ V,   S = (½ I + (Qᵀ V Q + ¼ I)^½)⁻¹,   U = Q Qᵀ

    with U and V as in `batch_and_match`. EM for factor analysis projects it to low rank. A batch is
    far smaller than d, so the updates must start from a diagonal Gaussian with about the right
    widths. None if log p is not finite around it.

    Reference: Modi, Cai and Saul, Batch, match, and patch: low-rank approximations for score-based
    variational inference, 2024.
    """
    shape = len(mean), min(_RANK, len(mean))
    factors = 0.1 * sds[:, None] * rng.standard_normal(shape) / len(mean) ** 0.5
    run = _Run(rng, evaluate, LowRank(mean, sds**2, factors))
    for _ in range(_MOST_UPDATES // _WINDOW):
        before = run.elbo
        run.go(_WINDOW)
        if not run.elbo > before + _GAIN:
            break
    return run.current


class _Run:
    """The updates from one start, with λ = n d / t, or less after one that lowered the ELBO."""

    def __init__(self, rng: np.random.Generator, evaluate: Evaluate, fit: LowRank) -> None:
        self.rng, self.evaluate, self.fit = rng, evaluate, fit
        self.current: Look | None = None
        self.share, self.count = 1.0, 0

    @property
    def elbo(self) -> float:
        return -np.inf if self.current is None else self.current.elbo

    @np.errstate(all="ignore")  # away from the mass, log p and its gradient can be anything
    def go(self, num_updates: int) -> None:
        for _ in range(num_updates):
            self.count += 1
            self._judge(self.fit.look(self.rng, self.evaluate) if self.fit.is_good else None)
            if self.current is not None:
                scale = len(self.current.x) * len(self.fit.mean)
                self.fit = self.current.updated(self.share * scale / self.count)

    def _judge(self, look: Look | None) -> None:
        """Goes on from a look that is not lower beyond noise, else from the one before, with less λ."""
        if look is not None and not np.isfinite(look.elbo):
            look = None
        if self.current is None:
            if look is None:  # nearer to the start log p may be finite
                narrow = 0.01 * self.fit.diagonal, 0.1 * self.fit.factors
                self.fit = LowRank(self.fit.mean, *narrow)
            self.current = look
        elif look is None or is_lower(look, self.current):
            self.share *= _SHRINK
        else:
            self.current, self.share = look, min(1.0, _GROW * self.share)


def _matched(fit: LowRank, x: Points, scores: Points, weight: float) -> tuple[_Matched, Vector]:
    """The covariance and the mean after an update."""
    x_bar, g_bar, shift = x.mean(axis=0), scores.mean(axis=0), (weight / (1 + weight)) ** 0.5
    per_row = (weight / len(x)) ** 0.5
    offset = shift * (fit.mean - x_bar)
    plus = np.concatenate([fit.factors, per_row * (x - x_bar).T, offset[:, None]], axis=1)
    q = np.concatenate([per_row * (scores - g_bar).T, shift * g_bar[:, None]], axis=1)
    v_q = fit.diagonal[:, None] * q + plus @ (plus.T @ q)
    values, vectors = np.linalg.eigh(q.T @ v_q)
    shrink = 1 / (0.5 + np.sqrt(np.maximum(values, 0) + 0.25))
    matched = _Matched(fit.diagonal, plus, (v_q @ vectors) * shrink)
    step = matched.times(g_bar[:, None])[:, 0] + x_bar
    return matched, (fit.mean + weight * step) / (1 + weight)
