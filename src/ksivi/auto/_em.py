"""A mixture of Gaussians for draws, by expectation maximisation.

It is written here because scikit-learn, which has one, takes no weights, and this library should
not need it.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._core.mixtures import Mixture

Points = Float[np.ndarray, "n d"]
Weights = Float[np.ndarray, " n"]
Features = Float[np.ndarray, "f m"]
Block = tuple[Features, Weights]

_HELD_OUT = 0.25
"""Share of the draws that choose the number of Gaussians."""
_MIN_GAIN = 0.005
"""More Gaussians must raise the held-out mean log density by more than this, in nats."""
_PATIENCE = 2
"""The number doubles until it has brought no gain this many times."""
_LEAST_PER_GAUSSIAN = 3
"""Draws for every mean and scale of a Gaussian."""
_FLOOR = 1e-6
"""Added to the variances, on the scale where all draws together have variance 1."""
_LLOYD_STEPS, _MAX_STEPS = 5, 60
_ROUGH, _FINE = 5e-4, 1e-4
"""EM stops when a step gains less, in nats: while the number is chosen, and at last."""
_BLOCK, _KEPT = 2**22, 16
"""Numbers in a block of features, about, and the number of blocks that are kept in memory."""
_TINY = 1e-300


def fit_mixture(
    rng: np.random.Generator, draws: Points, weights: Weights | None = None, most: int = 32
) -> Mixture:
    """The mixture of at most `most` Gaussians with full covariances that fits draws best.

    Their number doubles from 1 for as long as draws that are held out become more likely.
    """
    data = _Weighted.of(draws, np.ones(len(draws)) if weights is None else weights)
    loc, root = data.moments()
    whitened = data._replace(x=np.linalg.solve(root, (data.x - loc).T).T)
    found = _maximised(_Blocks(whitened), _chosen(rng, whitened, most), _FINE)
    return Mixture(found.shares, loc + found.means @ root.T, root @ found.roots)


class _Weighted(NamedTuple):
    """Distinct draws with weights that sum to 1."""

    x: Points
    weights: Weights

    @classmethod
    def of(cls, draws: Points, weights: Weights) -> "_Weighted":
        """A draw that occurs twice has twice the weight: a Gaussian needs many distinct draws."""
        x, place = np.unique(draws[weights > 0], axis=0, return_inverse=True)
        totals = np.bincount(place.ravel(), weights[weights > 0])
        return cls(x, totals / totals.sum())

    @property
    def size(self) -> float:
        """The effective number of draws."""
        return float(1 / np.sum(self.weights**2))

    def part(self, chosen: Int[np.ndarray, " m"]) -> "_Weighted":
        weights = self.weights[chosen]
        return _Weighted(self.x[chosen], weights / weights.sum())

    def moments(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """The mean, and the lower triangular root of the covariance with a trace of independence."""
        mean = self.weights @ self.x
        centred = self.x - mean
        covariance = (centred.T * self.weights) @ centred
        variances = np.maximum(np.diag(covariance), _TINY)
        return mean, np.linalg.cholesky(covariance + 1e-6 * np.diag(variances))


class _Blocks:
    """The features (1, x, xᵢ xⱼ for i ≤ j) of draws, one column per draw, in blocks of draws.

    They are kept if the memory allows it, and made again for every step otherwise.
    """

    def __init__(self, data: _Weighted):
        self.data = data
        count, dim = data.x.shape
        self._rows = max(1, _BLOCK // dim**2)
        self._kept = list(self._made()) if count <= _KEPT * self._rows else None

    def __iter__(self) -> Iterator[Block]:
        return self._made() if self._kept is None else iter(self._kept)

    def _made(self) -> Iterator[Block]:
        first, second = np.triu_indices(self.data.x.shape[1])
        for begin in range(0, len(self.data.x), self._rows):
            rows = slice(begin, begin + self._rows)
            x = self.data.x[rows].T
            features = np.concatenate([np.ones((1, x.shape[1])), x, x[first] * x[second]])
            yield features, self.data.weights[rows]


class _Sums(NamedTuple):
    """What the draws of each Gaussian sum to: weighted features, and squared weights."""

    features: Float[np.ndarray, "k f"]
    squares: Float[np.ndarray, " k"]

    @classmethod
    def of(cls, parts: Iterable[tuple[Float[np.ndarray, "k m"], Features]]) -> "_Sums":
        """From the share of each Gaussian in the weights of draws, and the draws' features."""
        each = [(members @ f.T, np.einsum("km,km->k", members, members)) for members, f in parts]
        features, squares = zip(*each, strict=True)
        return cls(functools.reduce(np.add, features), functools.reduce(np.add, squares))

    def gaussians(self, dim: int) -> Mixture:
        """The Gaussians with these moments. Those of too few draws are dropped."""
        masses = self.features[:, 0]
        sizes = masses**2 / np.maximum(self.squares, _TINY)
        enough = (sizes >= dim + 2) | (sizes == sizes.max())
        shares, sums = masses[enough], self.features[enough] / masses[enough, None]
        means, covariances = sums[:, 1 : dim + 1], np.empty((len(sums), dim, dim))
        first, second = np.triu_indices(dim)
        covariances[:, first, second] = sums[:, dim + 1 :] - means[:, first] * means[:, second]
        covariances[:, second, first] = covariances[:, first, second]
        covariances += _FLOOR * np.eye(dim)
        return Mixture(shares / shares.sum(), means, np.linalg.cholesky(covariances))


def _chosen(rng: np.random.Generator, data: _Weighted, most: int) -> Mixture:
    """The mixture of the best number of Gaussians, fitted to the draws that are not held out."""
    count, dim = data.x.shape
    held, kept = np.split(rng.permutation(count), [int(_HELD_OUT * count)])
    test, train = data.part(held), _Blocks(data.part(kept))
    most = min(most, int(train.data.size / (_LEAST_PER_GAUSSIAN * (dim + 2))))
    best = _maximised(train, _start(rng, train, 1), _ROUGH)
    top, misses, number = test.weights @ best.log_density(test.x), 0, 2
    while number <= most and misses < _PATIENCE:
        found = _maximised(train, _start(rng, train, number), _ROUGH)
        height = test.weights @ found.log_density(test.x)
        misses = 0 if height > top + _MIN_GAIN else misses + 1
        best, top = (found, height) if misses == 0 else (best, top)
        number *= 2
    return best


def _start(rng: np.random.Generator, blocks: _Blocks, number: int) -> Mixture:
    """Gaussians of the clusters that a few steps of Lloyd's algorithm find."""
    data, dim = blocks.data, blocks.data.x.shape[1]
    centres = _spread_out(rng, data, number)
    for _ in range(_LLOYD_STEPS):
        members = _nearest(data.x, centres) * data.weights
        masses = members.sum(axis=1)
        centres = members[masses > 0] @ data.x / masses[masses > 0, None]
    parts = ((_nearest(f[1 : dim + 1].T, centres) * weights, f) for f, weights in blocks)
    return _Sums.of(parts).gaussians(dim)


def _spread_out(rng: np.random.Generator, data: _Weighted, number: int) -> Points:
    """Centres as k-means++ chooses them: far from those before, with probability ∝ distance²."""
    chosen = [int(rng.choice(len(data.x), p=data.weights))]
    distances = np.full(len(data.x), np.inf)
    for _ in range(number - 1):
        distances = np.minimum(distances, np.sum((data.x - data.x[chosen[-1]]) ** 2, axis=1))
        odds = distances * data.weights
        chosen.append(int(rng.choice(len(data.x), p=odds / odds.sum())))
    return data.x[chosen]


def _nearest(x: Points, centres: Points) -> Float[np.ndarray, "k n"]:
    """1 for the nearest centre of each draw, and 0 for the others."""
    # ‖x − c‖² without ‖x‖², which is the same for all centres.
    labels = np.argmin(np.sum(centres**2, axis=1) - 2 * x @ centres.T, axis=1)
    return (np.arange(len(centres))[:, None] == labels).astype(np.float64)


def _maximised(blocks: _Blocks, mixture: Mixture, tolerance: float) -> Mixture:
    """EM steps until the mean log density rises by less than the tolerance."""
    before = -np.inf
    for _ in range(_MAX_STEPS):
        sums, now = _expected(blocks, mixture)
        if now - before < tolerance:
            break
        new = sums.gaussians(mixture.dim)
        # A Gaussian that was dropped takes its part of the density with it.
        before = now if len(new.shares) == len(mixture.shares) else -np.inf
        mixture = new
    return mixture


def _expected(blocks: _Blocks, mixture: Mixture) -> tuple[_Sums, float]:
    """The sums over the draws of each Gaussian, in part, and the mean log density."""
    coefficients, heights = _coefficients(mixture), []

    def parts() -> Iterator[tuple[Float[np.ndarray, "k m"], Features]]:
        for features, weights in blocks:
            logs = coefficients @ features
            top = logs.max(axis=0)
            members = np.exp(logs - top)
            total = members.sum(axis=0)
            heights.append(float(weights @ (top + np.log(total))))
            yield members * (weights / total), features

    return _Sums.of(parts()), sum(heights)


def _coefficients(mixture: Mixture) -> Float[np.ndarray, "k f"]:
    """log wₖ N(x; μₖ, Pₖ⁻¹) as a linear function of the features, up to a constant for all k.

    So an EM step is two products of matrices.
    """
    inverses = np.linalg.inv(mixture.roots)
    precisions = np.swapaxes(inverses, 1, 2) @ inverses
    linear = np.einsum("kij,kj->ki", precisions, mixture.means)
    log_dets = np.log(np.diagonal(mixture.roots, axis1=1, axis2=2)).sum(axis=1)
    constants = np.log(mixture.shares) - log_dets - 0.5 * np.sum(linear * mixture.means, axis=1)
    first, second = np.triu_indices(mixture.dim)
    squares = -np.where(first == second, 0.5, 1.0) * precisions[:, first, second]
    return np.concatenate([constants[:, None], linear, squares], axis=1)
