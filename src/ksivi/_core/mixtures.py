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
        return self.means[chosen] + np.einsum("nij,nj->ni", self.roots[chosen], xi)

    def log_density_and_score(
        self, x: Float[np.ndarray, "n d"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
        """log q(x) and ∇ log q(x)."""
        logs, whitened = self._parts(x)
        top = np.max(logs, axis=1, keepdims=True)
        parts = np.exp(logs - top)
        total = parts.sum(axis=1, keepdims=True)
        inverses = np.linalg.inv(self.roots)
        weighted = (parts / total)[:, :, None] * whitened
        return (top + np.log(total))[:, 0], -np.einsum("nki,kij->nj", weighted, inverses)

    def log_density(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log q(x)."""
        return np.logaddexp.reduce(self._parts(x)[0], axis=1)

    def responsibilities(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """The probability that x came from each Gaussian."""
        logs = self._parts(x)[0]
        return np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])

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
        self, x: Float[np.ndarray, "n d"]
    ) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "n k d"]]:
        """log wₖ N(x; μₖ, Rₖ Rₖᵀ) and Rₖ⁻¹ (x − μₖ)."""
        inverses = np.linalg.inv(self.roots)
        whitened = np.einsum("kij,nkj->nki", inverses, x[:, None] - self.means[None], optimize=True)
        log_dets = np.log(np.abs(np.diagonal(self.roots, axis1=1, axis2=2))).sum(axis=1)
        with np.errstate(divide="ignore"):
            constants = np.log(self.shares) - log_dets - 0.5 * self.dim * _LOG_2PI
        return constants[None] - 0.5 * np.sum(whitened**2, axis=2), whitened
