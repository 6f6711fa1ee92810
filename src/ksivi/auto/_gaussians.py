"""Gaussian approximations by batch and match: closed-form updates that need only scores."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._core.hmc import Evaluate
from .._core.mixtures import Mixture
from ._rows import put, rows, where

Points = Float[np.ndarray, "m d"]
Roots = Float[np.ndarray, "m d d"]
Values = Float[np.ndarray, " m"]
Batches = Float[np.ndarray, "m n d"]

_NUM_ELBO_DRAWS = 256
LOCAL_SD = 0.1
"""Standard deviation of a Gaussian that starts at the end of a path."""
LEAST_MASS = 0.02
"""Smallest share of the mass of a mode that `fit` must find."""
_LARGEST = 1e15
"""Means and standard deviations of Gaussians are smaller; their squares are float32 numbers."""
_MAX_ELBO_GAP = 8.0
"""Gaussians whose ELBO is further below the best, in nats, are ignored."""
_WINDOW = 6
"""Updates over which a Gaussian is watched before it can count as settled."""
_DRIFT = 1.5
"""A Gaussian drifts if a window changes it by more than this many of its single updates. Updates
that only differ by their draws change it no more together than alone."""
_SMALL_CHANGE = 1e-2
"""A Gaussian that changes by less in a window, in standard deviations, is final."""
_MAX_SPREAD, _MAX_SPREAD_PER_ROOT_DIM = 0.75, 0.2
"""Standard deviation of log p − log q, in nats, and its ratio to √d. If both are larger, a Gaussian
does not stop early: it may be in a funnel, where it drifts slowly."""
_NUM_AVERAGED = 10
"""Updates that are averaged at the end, where draws alone still change the Gaussian."""
_HOPELESS = 100.0
"""Gaussians whose ELBO is further below the best, in nats per coordinate, stop after a quarter of
the updates."""


class Gaussians(NamedTuple):
    """Means, lower triangular roots of the covariances, and ELBOs of several Gaussians."""

    means: Points
    roots: Roots
    elbos: Values

    def usable(self) -> "Gaussians":
        """The Gaussians whose ELBO is finite and not far below the best."""
        finite = np.isfinite(self.elbos) & np.isfinite(self.roots).all(axis=(1, 2))
        top = self.elbos[finite].max() if finite.any() else 0.0
        return rows(self, finite & (self.elbos > top - _MAX_ELBO_GAP))

    def each(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """Mean, root and ELBO of every Gaussian."""
        return [(mean, root, float(elbo)) for mean, root, elbo in zip(*self, strict=True)]

    def mixture(self) -> Mixture:
        """The mixture of the Gaussians with equal shares."""
        return Mixture(np.full(len(self.elbos), 1 / len(self.elbos)), self.means, self.roots)


def batch_and_match(
    rng: np.random.Generator,
    evaluate: Evaluate,
    starts: Points,
    sds: Values,
    num_steps: int = 100,
) -> Gaussians:
    r"""Gaussians N(μ, Σ) that minimise a score-based divergence to the target.

    Each starts from N(start, sd² I). An update draws a batch x with scores g, means x̄, ḡ and
    covariances C, Γ, and moves to

        Σ′ U Σ′ + Σ′ = V,   U = λ Γ + λ/(1+λ) ḡ ḡᵀ,   V = Σ + λ C + λ/(1+λ) (μ − x̄)(μ − x̄)ᵀ
        μ′ = (μ + λ (Σ′ ḡ + x̄)) / (1 + λ)

    where λ decreases as 1/t. A few dozen updates reach a Gaussian target of any scale. The last
    updates have λ = 1, 1/2, 1/3, …, which averages over their draws. They come early for a Gaussian
    that is near the target and no longer drifts.

    Reference: Cai, Modi, Pillaud-Vivien, Margossian, Gower, Blei and Saul, Batch and match, ICML
    2024.
    """
    fits = _first(starts.astype(np.float64), sds)
    with np.errstate(all="ignore"):  # away from the mass, log p and its gradient can be anything
        for t in range(num_steps):
            active = np.flatnonzero(fits.is_active)
            if not len(active):
                break
            put(fits, active, rows(fits, active).updated(rng, evaluate, t))
            if (t + 1) % _WINDOW == 0:
                worst = fits.least_hopeful() if 4 * t > num_steps else -np.inf
                put(fits, active, rows(fits, active).watched(worst))
            if t + 1 == num_steps - _NUM_AVERAGED:
                fits.num_averaged[fits.num_averaged == 0] = 1
        return Gaussians(fits.means, fits.roots, elbos_of(rng, evaluate, fits.means, fits.roots))


class _Fits(NamedTuple):
    """Gaussians, and what is known of them.

    **Attributes:**

    - `old_means`, `old_roots`: the Gaussians at the start of the window.
    - `changes2`, `spreads`: sums over the window of their squared changes, and of the standard
        deviations of log p − log q.
    - `elbos`: the means of log p − log q in the last batch.
    - `num_averaged`: 1 or more for a Gaussian whose updates are averaged.
    """

    means: Points
    roots: Roots
    old_means: Points
    old_roots: Roots
    changes2: Values
    spreads: Values
    elbos: Values
    num_averaged: Int[np.ndarray, " m"]
    is_active: Bool[np.ndarray, " m"]

    def updated(self, rng: np.random.Generator, evaluate: Evaluate, t: int) -> "_Fits":
        """After one update. A Gaussian whose update fails stays as it is, and stops."""
        dim = self.means.shape[1]
        size = max(32, 2 * dim)
        x, log_q = _draws(rng, self.means, self.roots, size)
        log_p, scores = evaluate(x.reshape(-1, dim))
        log_ratio, weights = log_p.reshape(log_q.shape) - log_q, self._weights(size * dim, t)
        means, roots = _update(self.means, self.roots, x, scores.reshape(x.shape), weights)
        good = _is_good(means, roots)
        means, roots = where(good, means, self.means), where(good, roots, self.roots)
        return self._replace(
            means=means,
            roots=roots,
            changes2=self.changes2 + _change(self.means, self.roots, means, roots) ** 2,
            spreads=self.spreads + np.std(log_ratio, axis=1),
            elbos=np.mean(log_ratio, axis=1),
            num_averaged=self.num_averaged + (self.num_averaged > 0),
            is_active=good & (self.num_averaged < _NUM_AVERAGED),
        )

    def _weights(self, scale: int, t: int) -> Values:
        """λ of each Gaussian."""
        averaging = np.where(self.num_averaged > 0, self.num_averaged, 1 / scale)
        return np.minimum(scale / (t + 1), 1 / averaging)

    def least_hopeful(self) -> float:
        """The ELBO below which a Gaussian is hopeless."""
        best = np.max(self.elbos, where=np.isfinite(self.elbos), initial=-np.inf)
        return best - _HOPELESS * self.means.shape[1]

    def watched(self, worst: float) -> "_Fits":
        """At the end of a window: which are final, which can be averaged, and which are hopeless."""
        change = _change(self.old_means, self.old_roots, self.means, self.roots)
        is_final = (change < _SMALL_CHANGE) & np.isfinite(self.spreads)
        stays = is_final | (change < _DRIFT * np.sqrt(self.changes2 / _WINDOW))
        most = max(_MAX_SPREAD, _MAX_SPREAD_PER_ROOT_DIM * self.means.shape[1] ** 0.5)
        settled = stays & (self.spreads < most * _WINDOW)
        return self._replace(
            old_means=self.means,
            old_roots=self.roots,
            changes2=np.zeros_like(self.changes2),
            spreads=np.zeros_like(self.spreads),
            num_averaged=np.maximum(self.num_averaged, settled),
            is_active=self.is_active & ~is_final & ~(self.elbos < worst),
        )


def _first(starts: Points, sds: Values) -> _Fits:
    roots = np.asarray(sds, np.float64)[:, None, None] * np.eye(starts.shape[1])
    counts, (a, b, c) = np.zeros(len(starts), int), np.zeros((3, len(starts)))
    return _Fits(starts, roots, starts.copy(), roots.copy(), a, b, c, counts, counts == 0)


def _draws(
    rng: np.random.Generator, means: Points, roots: Roots, size: int
) -> tuple[Batches, Float[np.ndarray, "m n"]]:
    """Draws of each Gaussian, and their log densities."""
    num, dim = means.shape
    xi = rng.standard_normal((num, size, dim))
    log_dets = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    log_q = -0.5 * np.sum(xi**2, axis=2) - log_dets[:, None] - 0.5 * dim * np.log(2 * np.pi)
    return means[:, None] + xi @ np.swapaxes(roots, 1, 2), log_q


def _is_good(means: Points, roots: Roots) -> Bool[np.ndarray, " m"]:
    """Whether a mean and a root are not too large, and the root can be inverted.

    Along a flat direction of an improper posterior a Gaussian grows without limit.
    """
    diagonals = np.diagonal(roots, axis1=1, axis2=2)
    is_bounded = np.all(np.abs(means) < _LARGEST, axis=1)
    is_bounded &= np.all(np.abs(roots) < _LARGEST, axis=(1, 2))
    return is_bounded & np.all(diagonals > np.finfo(np.float32).tiny, axis=1)


def _update(
    means: Points, roots: Roots, x: Batches, scores: Batches, weights: Values
) -> tuple[Points, Roots]:
    """One update, from batches and their scores.

    A point whose score is not finite is replaced by the mean, with score 0.
    """
    is_finite = np.isfinite(scores).all(axis=2, keepdims=True)
    scores, x = np.where(is_finite, scores, 0), np.where(is_finite, x, means[:, None])
    x_bar, g_bar, weight = x.mean(axis=1), scores.mean(axis=1), weights[:, None]
    # With V = R Rᵀ: Σ′ = 2 R (I + (I + 4 Rᵀ U R)^½)⁻¹ Rᵀ.
    offsets = np.sqrt(weight / (1 + weight)) * (means - x_bar)
    root = _root(np.swapaxes(roots, 1, 2), _scaled(x, weights), offsets[:, None])
    shift = np.sqrt(weight / (1 + weight)) * g_bar
    u_half = np.concatenate([_scaled(scores, weights), shift[:, None]], axis=1) @ root
    values, vectors = _eigh(np.swapaxes(u_half, 1, 2) @ u_half)
    shrink = np.sqrt(2 / (1 + np.sqrt(1 + 4 * np.maximum(values, 0))))
    half = root @ vectors * shrink[:, None]
    step = np.einsum("mij,mkj,mk->mi", half, half, g_bar, optimize=True) + x_bar
    return (means + weight * step) / (1 + weight), _root(np.swapaxes(half, 1, 2))


def _scaled(x: Batches, weights: Values) -> Batches:
    """Rows whose products sum to λ times the covariance of a batch."""
    return np.sqrt(weights / x.shape[1])[:, None, None] * (x - x.mean(axis=1, keepdims=True))


def _root(*parts: Batches) -> Roots:
    """The lower triangular root of Σ PᵀP, by QR: it exists for any P, and rounding is that of P."""
    upper = np.linalg.qr(np.concatenate(parts, axis=1), mode="r")
    signs = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)
    return np.swapaxes(signs[:, :, None] * upper, 1, 2)


def _eigh(matrices: Roots) -> tuple[Points, Roots]:
    """Eigenvalues and eigenvectors of each matrix; NaN where they cannot be computed."""
    is_finite = np.isfinite(matrices).all(axis=(1, 2))
    try:
        values, vectors = np.linalg.eigh(where(is_finite, matrices, np.zeros_like(matrices)))
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.full(matrices.shape[:2], np.nan), np.full_like(matrices, np.nan)
        values, vectors = map(np.concatenate, zip(*map(_eigh, matrices[:, None]), strict=True))
    return where(is_finite, values, np.full_like(values, np.nan)), vectors


def _change(old_means: Points, old_roots: Roots, means: Points, roots: Roots) -> Values:
    """How far Gaussians are from old ones, in standard deviations of the old ones, per coordinate."""
    offsets, eye = (means - old_means)[:, :, None], np.eye(means.shape[1])
    try:
        between = np.linalg.solve(old_roots, np.concatenate([roots, offsets], axis=2))
    except np.linalg.LinAlgError:  # one of them is nearly singular
        return np.full(len(means), np.inf)
    ratios, shifts = between[:, :, :-1] @ np.swapaxes(between[:, :, :-1], 1, 2), between[:, :, -1]
    spread = np.sum((ratios - eye) ** 2, axis=(1, 2)) + np.sum(shifts**2, axis=1)
    return np.sqrt(spread / means.shape[1])


def elbos_of(rng: np.random.Generator, evaluate: Evaluate, means: Points, roots: Roots) -> Values:
    x, log_q = _draws(rng, means, roots, _NUM_ELBO_DRAWS)
    log_p = evaluate(x.reshape(-1, x.shape[2]))[0].reshape(log_q.shape)
    return np.mean(log_p - log_q, axis=1)


def log_gaussian(
    mean: Float[np.ndarray, " d"], root: Float[np.ndarray, "d d"], x: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, " n"]:
    """log N(x; mean, root rootᵀ)."""
    distance2, log_det = standardised(mean, root, x)
    return -0.5 * distance2 - log_det - 0.5 * len(mean) * np.log(2 * np.pi)


def standardised(
    mean: Float[np.ndarray, " d"], root: Float[np.ndarray, "d d"], x: Float[np.ndarray, "n d"]
) -> tuple[Float[np.ndarray, " n"], float]:
    """|root⁻¹ (x − mean)|², and log det root."""
    y = np.linalg.solve(root, (x - mean[None]).T)
    return np.sum(y**2, axis=0), float(np.sum(np.log(np.diagonal(root))))
