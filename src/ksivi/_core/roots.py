"""Roots of covariances: full matrices, and low rank plus diagonal for many dimensions.

Both work on NumPy and on JAX arrays: they use what the two have in common.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

Matrix = Float[Any, "n d"]


class DenseRoot(NamedTuple):
    """R, a matrix. The covariance is R Rᵀ."""

    matrix: Float[Any, "d d"]

    @property
    def dim(self) -> int:
        return len(self.matrix)

    def times(self, xi: Matrix) -> Matrix:
        """R ξ, for every row ξ."""
        return xi @ self.matrix.T

    def pulled(self, score: Matrix) -> Matrix:
        """Rᵀ s, for every row s: the score in coordinates ξ."""
        return score @ self.matrix

    def solve(self, x: Matrix) -> Matrix:
        """R⁻¹ x, for every row x."""
        return x.__array_namespace__().linalg.solve(self.matrix, x.T).T

    def log_det(self) -> Any:
        """log |det R|."""
        return self.matrix.__array_namespace__().linalg.slogdet(self.matrix)[1]

    def scaled(self, factors: Float[Any, " d"]) -> "DenseRoot":
        """diag(factors) R."""
        return DenseRoot(factors[:, None] * self.matrix)

    def lengths(self) -> Float[Any, " d"]:
        """The standard deviation of every coordinate."""
        return (self.matrix**2).sum(axis=1) ** 0.5

    def dense(self) -> "DenseRoot":
        return self

    def with_rank_of(self, multiple: int) -> "DenseRoot":
        """The root itself: it has one shape per dimension."""
        return self

    def stretched(self, vectors: Float[Any, "d r"], factors: Float[Any, " r"]) -> "DenseRoot":
        """R (I + P (S − 1) Pᵀ), for orthonormal vectors P and factors S along them."""
        more = (self.matrix @ vectors) * (factors - 1)
        return DenseRoot(self.matrix + more @ vectors.T)


class LowRankRoot(NamedTuple):
    """R = diag(c) (I + P (S − 1) Pᵀ), with orthonormal vectors P in few columns.

    So the covariance is diagonal plus low rank, and all costs are linear in the dimension.
    """

    scales: Float[Any, " d"]
    vectors: Float[Any, "d r"]
    factors: Float[Any, " r"]

    @property
    def dim(self) -> int:
        return len(self.scales)

    def times(self, xi: Matrix) -> Matrix:
        """R ξ, for every row ξ."""
        return self.scales[None] * self._along(xi, self.factors)

    def pulled(self, score: Matrix) -> Matrix:
        """Rᵀ s, for every row s: the score in coordinates ξ."""
        return self._along(self.scales[None] * score, self.factors)

    def solve(self, x: Matrix) -> Matrix:
        """R⁻¹ x, for every row x."""
        return self._along(x / self.scales[None], 1 / self.factors)

    def log_det(self) -> Any:
        """log |det R|."""
        log = self.scales.__array_namespace__().log
        return log(self.scales).sum() + log(self.factors).sum()

    def scaled(self, factors: Float[Any, " d"]) -> "LowRankRoot":
        """diag(factors) R."""
        return self._replace(scales=factors * self.scales)

    def lengths(self) -> Float[Any, " d"]:
        """The standard deviation of every coordinate."""
        return self.scales * (1 + (self.vectors**2) @ (self.factors**2 - 1)) ** 0.5

    def dense(self) -> DenseRoot:
        """The same root as a matrix."""
        return DenseRoot(self.times(np.eye(self.dim)).T)

    def with_rank_of(self, multiple: int) -> "LowRankRoot":
        """The same root, with vectors 0 added until their number is a multiple of this one.

        A program is compiled for each number of vectors.
        """
        more = -len(self.factors) % multiple
        vectors = np.concatenate([self.vectors, np.zeros((self.dim, more))], axis=1)
        return LowRankRoot(self.scales, vectors, np.concatenate([self.factors, np.ones(more)]))

    def stretched(self, vectors: Float[Any, "d r"], factors: Float[Any, " r"]) -> "LowRankRoot":
        """A root of R (I + P (S − 1) Pᵀ)² Rᵀ, for other orthonormal vectors P and factors S."""
        basis = np.linalg.qr(np.concatenate([self.vectors, vectors], axis=1))[0]
        inner = basis.T + ((basis.T @ self.vectors) * (self.factors - 1)) @ self.vectors.T
        inner = inner + ((inner @ vectors) * (factors - 1)) @ vectors.T
        squares, axes = np.linalg.eigh(inner @ inner.T)
        return LowRankRoot(self.scales, basis @ axes, np.sqrt(np.maximum(squares, 1e-12)))

    def _along(self, x: Matrix, factors: Float[Any, " r"]) -> Matrix:
        return x + ((x @ self.vectors) * (factors - 1)[None]) @ self.vectors.T


Root = DenseRoot | LowRankRoot


def diagonal_root(sds: Float[np.ndarray, " d"]) -> LowRankRoot:
    """The root of a diagonal covariance."""
    return LowRankRoot(sds, np.zeros((len(sds), 0)), np.zeros(0))
