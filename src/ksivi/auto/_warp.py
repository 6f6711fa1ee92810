"""Warped Gaussians for draws: the warp of each coordinate by its quantiles."""

import functools

import numpy as np
from jaxtyping import Float

from .._core.numerics import leading_axes
from .._core.roots import DenseRoot, LowRankRoot, Root
from .._core.warped import Warped, sinh_arcsinh

Draws = Float[np.ndarray, "n d"]

_LEVELS = np.array([0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.975, 0.99])
_SKEWS = np.linspace(-0.6, 0.6, 25)
_TAILS = np.exp(np.linspace(-0.6, 0.4, 21))
_NUM_AXES = 8
"""Principal axes along which a covariance of low rank is corrected."""
_MARGIN = 1.3
"""Noise of finite draws can exceed its limit, by this factor at most."""
_FEWEST_PER_DIM = 2
"""Draws per dimension that a full matrix needs."""


def fit_warped(
    draws: Draws, root: Root, is_dense: bool = False, num_chains: int | None = None
) -> Warped:
    r"""A warped Gaussian with the marginals of the draws, and about the correlations of a root.

    For each coordinate and each pair (skew, tail) on a grid, location and scale follow by weighted
    least squares from the quantiles of the draws. The best pair is kept. Then the correlations
    are corrected where noise cannot explain the covariance of the draws, which the root transforms
    to N(0, I). In a full matrix that is all of the covariance, otherwise that along few directions.

    **Arguments:**

    - `is_dense`: whether to use a full matrix, if the draws are enough.
    - `num_chains`: the number of chains, if the draws are states of chains: first a state of every
        chain, then the next states, and so on. Default: the draws are independent.
    """
    loc, scale, skew, tail = _marginals(draws)
    warped = Warped(loc, scale, skew, tail, root.scaled(1 / root.lengths()))
    num_chains, normal = num_chains or len(draws), warped.normal(draws)
    whitened = warped.root.solve(normal)
    count = _num_independent(whitened, num_chains)
    if is_dense and _FEWEST_PER_DIM * draws.shape[1] <= len(draws):
        root = DenseRoot(warped.root.dense().matrix @ _shrunk_root(whitened, count))
    else:
        root = _corrected(warped.root, normal, num_chains, count)
    return warped._replace(root=root.scaled(1 / root.lengths()))


def _marginals(draws: Draws) -> Float[np.ndarray, "4 d"]:
    """Location, scale, skew and tail of each coordinate."""
    quantiles = np.quantile(draws, _LEVELS, axis=0)
    (skews, tails, shapes, basis), weights = _grid(), _precisions()
    centres = weights @ quantiles / weights.sum()
    products = (weights * basis) @ (quantiles - centres)  # each shape with each coordinate
    # The residual of a least-squares line is least where its slope explains most.
    best = np.argmax(np.where(products > 0, products**2, -1.0), axis=0)
    means = shapes @ weights / weights.sum()
    norms = np.sqrt(((shapes - means[:, None]) ** 2) @ weights)
    scale = products[best, np.arange(draws.shape[1])] / norms[best]
    return np.stack([centres - scale * means[best], scale, skews[best], tails[best]])


@functools.cache
def _grid() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Skews, tails, the quantiles of their warps, and the same centred and of length 1."""
    from scipy.special import ndtri  # SciPy takes longer to import than this library

    skews, tails = (grid.ravel() for grid in np.meshgrid(_SKEWS, _TAILS))
    shapes = sinh_arcsinh(ndtri(_LEVELS), skews[:, None], tails[:, None])
    weights = _precisions()
    basis = shapes - (shapes @ weights / weights.sum())[:, None]
    basis /= np.sqrt(basis**2 @ weights)[:, None]
    return skews, tails, shapes, basis


@functools.cache
def _precisions() -> Float[np.ndarray, " l"]:
    """The precisions of the quantiles of normal draws, up to a factor."""
    from scipy.special import ndtri

    density = np.exp(-0.5 * ndtri(_LEVELS) ** 2)
    return density**2 / (_LEVELS * (1 - _LEVELS))


def _num_independent(whitened: Draws, num_chains: int) -> float:
    """The number of independent draws whose variances have as much noise as those of the states.

    If a chain has k states, the mean of their squares varies between chains as the mean of κ
    independent squares, with 1 ≤ κ ≤ k. On average over coordinates,

        κ = var(y²) / var(means of y² over the states of a chain)
    """
    squares = (whitened - whitened.mean(axis=0)) ** 2
    by_chain = squares.reshape(-1, num_chains, whitened.shape[1])
    if len(by_chain) == 1 or num_chains == 1:
        return float(num_chains)
    between = np.mean(np.var(by_chain.mean(axis=0), axis=0, ddof=1))
    per_chain = np.mean(np.var(squares, axis=0)) / max(between, 1e-30)
    return num_chains * float(np.clip(per_chain, 1, len(by_chain)))


def _shrunk_root(whitened: Draws, num_independent: float) -> Float[np.ndarray, "d d"]:
    """A root of the covariance, shrunk towards I by what noise explains.

    Reference: Ledoit and Wolf, A well-conditioned estimator for large-dimensional covariance
    matrices, 2004.
    """
    n, dim = whitened.shape
    centred = whitened - whitened.mean(axis=0)
    covariance = centred.T @ centred / n
    spread = np.sum(np.sum(centred**2, axis=1) ** 2) / n - np.sum(covariance**2)
    noise = spread / num_independent
    share = min(1.0, max(0.0, noise / np.sum((covariance - np.eye(dim)) ** 2)))
    return np.linalg.cholesky((1 - share) * covariance + share * np.eye(dim))


def _corrected(root: Root, normal: Draws, num_chains: int, num_independent: float) -> Root:
    """The root, with the covariance of the draws along few directions.

    These are the main directions of the root itself, and then principal axes. Half of the chains
    give the axes, and the other half the covariance along them: in the first half it is too large,
    for it chose them.
    """
    if isinstance(root, LowRankRoot):
        widest = np.argsort(-np.abs(np.log(root.factors)))[:_NUM_AXES]
        root = _along(root, root.vectors[:, widest], normal, num_independent)
    is_first = np.arange(len(normal)) % num_chains % 2 == 1
    axes = _axes(root, normal[is_first])
    return _along(root, axes, normal[~is_first], num_independent / 2)


def _axes(root: Root, normal: Draws) -> Float[np.ndarray, "d k"]:
    """Principal axes of draws, and of the same draws after the root has whitened them.

    A wide direction that the root has too narrow may stand out from noise in the first only.
    """
    before, after = (leading_axes(x, _NUM_AXES) for x in (normal, root.solve(normal)))
    return np.linalg.qr(np.concatenate([root.pulled(before.T).T, after], axis=1))[0]


def _along(
    root: Root, vectors: Float[np.ndarray, "d k"], normal: Draws, num_independent: float
) -> Root:
    """The root with the covariance of the draws along orthonormal vectors, unless noise explains it.

    The eigenvalues of noise are within (1 ± √(k/n))².
    """
    if not vectors.shape[1]:
        return root
    along = root.solve(normal) @ vectors
    values, turned = np.linalg.eigh(np.atleast_2d(np.cov(along, rowvar=False)))
    noise = _MARGIN * (vectors.shape[1] / num_independent) ** 0.5
    kept = (values > (1 + noise) ** 2) | (values < max(0.0, 1 - noise) ** 2)
    return root.stretched(vectors @ turned[:, kept], np.sqrt(values[kept]))
