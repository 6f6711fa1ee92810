"""Gaussians with warped coordinates, in NumPy or JAX."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .roots import Root

Matrix = Float[Any, "n d"]
Vector = Float[Any, " d"]

_LOG_2PI = float(np.log(2 * np.pi))
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(40)


class Warped(NamedTuple):
    r"""x = loc + scale · sinh((asinh(y) + skew) / tail), with y = R ξ and ξ ~ N(0, I).

    The rows of R have length 1, so every yⱼ is standard normal, and the warp makes each coordinate
    skewed and its tails heavy (tail < 1) or light. With skew 0 and tail 1 it is a Gaussian.

    Reference: Jones and Pewsey, Sinh-arcsinh distributions, Biometrika 2009.
    """

    loc: Vector
    scale: Vector
    skew: Vector
    tail: Vector
    root: Root

    @property
    def dim(self) -> int:
        return len(self.loc)

    def at(self, xi: Matrix) -> Matrix:
        """x, for every row ξ."""
        warps = sinh_arcsinh(self.root.times(xi), self.skew[None], self.tail[None])
        return self.loc[None] + self.scale[None] * warps

    def normal(self, x: Matrix) -> Matrix:
        """y, for every row x."""
        return x.__array_namespace__().sinh(self._angle(self._standard(x)))

    def log_density(self, x: Matrix) -> Float[Any, " n"]:
        """log q(x)."""
        xp = x.__array_namespace__()
        w = self._standard(x)
        angle = self._angle(w)
        xi = self.root.solve(xp.sinh(angle))
        constant = (xp.log(self.tail) - xp.log(self.scale)).sum() - self.root.log_det()
        slopes = xp.log(xp.cosh(angle)) - 0.5 * xp.log1p(w**2)
        return constant + (slopes - 0.5 * xi**2 - 0.5 * _LOG_2PI).sum(axis=1)

    def draws(self, rng: np.random.Generator, n: int) -> tuple[Matrix, np.ndarray]:
        """n independent draws, and zeros: the number of the only component."""
        return self.at(rng.standard_normal((n, self.dim))), np.zeros(n, int)

    def linear(self) -> tuple[Vector, Root]:
        """Mean and a root of about the covariance."""
        w = sinh_arcsinh(_NODES[:, None], self.skew, self.tail)
        weights = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
        mean = weights @ w
        sd = np.sqrt(weights @ (w - mean) ** 2)
        return self.loc + self.scale * mean, self.root.scaled(self.scale * sd)

    def diagonal(self) -> tuple[Vector, Vector]:
        """Means and standard deviations."""
        mean, root = self.linear()
        return mean, root.lengths()

    def widened(self, factor: float) -> "Warped | Halves":
        """Half of this distribution, and half of the same with y wider by a factor."""
        return self if factor == 1 else Halves(self, factor)

    def _angle(self, w: Matrix) -> Matrix:
        return self.tail[None] * w.__array_namespace__().asinh(w) - self.skew[None]

    def _standard(self, x: Matrix) -> Matrix:
        return (x - self.loc[None]) / self.scale[None]


class Halves(NamedTuple):
    """Half of the draws are of a warped Gaussian, and half of the same with wider y."""

    of: Warped
    factor: float

    @property
    def dim(self) -> int:
        return self.of.dim

    @property
    def wide(self) -> Warped:
        return self.of._replace(root=self.of.root.scaled(np.full(self.dim, self.factor)))

    def draws(self, rng: np.random.Generator, n: int) -> tuple[Matrix, np.ndarray]:
        """n independent draws, and whether each is of the wider half."""
        chosen = rng.random(n) < 0.5
        xi = rng.standard_normal((n, self.dim))
        return self.of.at(np.where(chosen[:, None], self.factor * xi, xi)), chosen.astype(int)

    def log_density(self, x: Matrix) -> Float[Any, " n"]:
        """log q(x)."""
        return np.logaddexp(self.of.log_density(x), self.wide.log_density(x)) - np.log(2)


def sinh_arcsinh(y: Any, skew: Any, tail: Any) -> Any:
    """The warp sinh((asinh(y) + skew) / tail) of a standard normal y."""
    xp = y.__array_namespace__()
    return xp.sinh((xp.asinh(y) + skew) / tail)


def gaussian(mean: Vector, root: Root) -> Warped:
    """The Gaussian N(mean, R Rᵀ), without a warp."""
    sd = root.lengths()
    return Warped(mean, sd, np.zeros_like(sd), np.ones_like(sd), root.scaled(1 / sd))
