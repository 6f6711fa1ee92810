"""Axes along which a Gaussian is too narrow or too wide, by the mean curvature of log p."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .._core.hmc import Evaluate
from .._core.roots import LowRankRoot

Vector = Float[np.ndarray, " d"]
Columns = Float[np.ndarray, "d k"]

_NUM_DRAWS, _STEP = 32, 0.5
"""Draws over which the curvature is averaged, and the distance of its differences."""
_NUM_PRODUCTS = 40
_NUM_AXES, _LEAST_CHANGE = 16, 0.1
"""The most axes that are corrected, and the least change of a log width that is worth it."""
_ROUNDS = 2
"""Of a Gaussian that was far too narrow, the first round finds the curvature at the centre only."""
_FLATTEST = 0.01
"""An axis with less curvature is far from Gaussian, and stays as it is."""


def sharpened(
    rng: np.random.Generator, evaluate: Evaluate, mean: Vector, root: LowRankRoot
) -> LowRankRoot:
    r"""The root R, corrected along the axes where the curvature of log p disagrees with it most.

    The best Gaussian has E[−∇² log p] = I in coordinates x = m + R u. Axes whose eigenvalue λ of
    this matrix is extreme are scaled by 1/√λ. Lanczos' method finds them. Its products with a
    vector v are differences of scores:

        E[−∇² log p] v ≈ E[s(x − ε R v) − s(x + ε R v)] / (2 ε)

    A covariance of draws does not show such axes where dimensions are many more than draws. A
    change that does not raise the ELBO is not made.
    """
    for _ in range(_ROUNDS):
        root = _sharper(rng, evaluate, mean, root)
    return root


def _sharper(
    rng: np.random.Generator, evaluate: Evaluate, mean: Vector, root: LowRankRoot
) -> LowRankRoot:
    noise = rng.standard_normal((_NUM_DRAWS, len(mean)))
    draws = mean + root.times(noise)

    def product(v: Vector) -> Vector:
        step = _STEP * root.times(v[None])
        _, scores = evaluate(np.concatenate([draws - step, draws + step]))
        below, above = np.split(root.pulled(scores), 2)
        return np.mean(below - above, axis=0) / (2 * _STEP)

    def elbo(root: LowRankRoot) -> float:
        return float(np.mean(evaluate(mean + root.times(noise))[0]) + root.log_det())

    values, axes = _extremes(product, rng.standard_normal(len(mean)))
    better = _scaled(root, values, axes)
    return better if elbo(better) > elbo(root) else root


def _scaled(root: LowRankRoot, values: Float[np.ndarray, " k"], axes: Columns) -> LowRankRoot:
    """The root with axes scaled by 1/√λ, those with the largest changes."""
    change = -0.5 * np.log(np.maximum(values, _FLATTEST))
    matters = (values > _FLATTEST) & (np.abs(change) > _LEAST_CHANGE)
    kept = np.argsort(np.where(matters, -np.abs(change), 0.0))[: min(_NUM_AXES, matters.sum())]
    return root.stretched(axes[:, kept], np.exp(change[kept]))


def _extremes(
    product: Callable[[Vector], Vector], start: Vector
) -> tuple[Float[np.ndarray, " k"], Columns]:
    """Approximate eigenvalues of a symmetric matrix, with their vectors, by Lanczos' method.

    SciPy's form takes as many products as it needs to converge, and differences are never exact.
    Products that are not finite end it.
    """
    basis, images = np.zeros((len(start), 0)), np.zeros((len(start), 0))
    while basis.shape[1] < min(_NUM_PRODUCTS, len(start)) and np.isfinite(start).all():
        for _ in range(2):  # once leaves rounding errors
            start = start - basis @ (basis.T @ start)
        axis = start / np.linalg.norm(start)
        start = product(axis)
        if np.isfinite(start).all():
            basis, images = np.column_stack([basis, axis]), np.column_stack([images, start])
    projected = basis.T @ images
    values, turned = np.linalg.eigh(0.5 * (projected + projected.T))
    return values, basis @ turned
