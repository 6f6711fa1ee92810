"""Mixtures of Gaussians in NumPy. Nothing is compiled, and precision is double."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

_LOG_2PI = float(np.log(2 * np.pi))


class Mixture(NamedTuple):
    """Σₖ wₖ N(μₖ, Rₖ Rₖᵀ), with lower triangular roots R of the covariances."""

    shares: Float[np.ndarray, " k"]
    means: Float[np.ndarray, "k d"]
    roots: Float[np.ndarray, "k d d"]

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    def draws(
        self, rng: np.random.Generator, n: int
    ) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"]]:
        """n independent draws, and the Gaussian of each."""
        chosen = rng.choice(len(self.shares), n, p=self.shares / self.shares.sum())
        return self.at(chosen, rng.standard_normal((n, self.dim))), chosen

    def at(
        self, chosen: Int[np.ndarray, " n"], xi: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n d"]:
        """μₖ + Rₖ ξ, for the chosen k of each row."""
        return self.means[chosen] + times_chosen(xi, np.swapaxes(self.roots, 1, 2), chosen)

    def log_density_and_score(
        self, x: Float[np.ndarray, "n d"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
        """log q(x) and ∇ log q(x)."""
        inverses = np.linalg.inv(self.roots)
        logs, whitened = self._parts(x, inverses)
        top = np.max(logs, axis=0)
        parts = np.exp(logs - top)
        total, score = parts.sum(axis=0), np.zeros(x.shape)
        for share, y, inverse in zip(parts / total, whitened, inverses, strict=True):
            score -= (share[:, None] * y) @ inverse
        return top + np.log(total), score

    def log_density(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log q(x)."""
        return np.logaddexp.reduce(self._parts(x, np.linalg.inv(self.roots))[0], axis=0)

    def responsibilities(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """The probability that x came from each Gaussian."""
        logs = self._parts(x, np.linalg.inv(self.roots))[0]
        return np.exp(logs - np.logaddexp.reduce(logs, axis=0)).T

    def widened(self, scale: float) -> "Mixture":
        """Half of this mixture, and half of the same with every Gaussian wider by a factor."""
        if scale == 1:
            return self
        return Mixture(
            np.concatenate([self.shares, self.shares]) / 2,
            np.concatenate([self.means, self.means]),
            np.concatenate([self.roots, scale * self.roots]),
        )

    def _parts(
        self, x: Float[np.ndarray, "n d"], inverses: Float[np.ndarray, "k d d"]
    ) -> tuple[Float[np.ndarray, "k n"], list[Float[np.ndarray, "n d"]]]:
        """log wₖ N(x; μₖ, Rₖ Rₖᵀ) and Rₖ⁻¹ (x − μₖ)."""
        # One Gaussian at a time: its arrays stay in the cache, and products of matrices are quick.
        whitened = [
            (x - mean) @ inverse.T for mean, inverse in zip(self.means, inverses, strict=True)
        ]
        log_dets = np.log(np.abs(np.diagonal(self.roots, axis1=1, axis2=2))).sum(axis=1)
        with np.errstate(divide="ignore"):
            constants = np.log(self.shares) - log_dets - 0.5 * self.dim * _LOG_2PI
        distances = np.stack([np.einsum("ni,ni->n", y, y) for y in whitened])
        return constants[:, None] - 0.5 * distances, whitened


@np.errstate(all="ignore")  # scores far out may be infinite
def times_chosen(
    x: Float[np.ndarray, "n d"], matrices: Float[np.ndarray, "k d d"], chosen: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n d"]:
    """xᵢ Aₖ, for the chosen k of each row i."""
    product = np.empty(x.shape)
    for k in np.unique(chosen):
        rows = chosen == k
        product[rows] = x[rows] @ matrices[k]
    return product


def root_of(draws: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """The lower triangular root of the covariance of draws, with a trace of independence."""
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    return np.linalg.cholesky(covariance + 1e-6 * np.diag(np.diag(covariance)))
