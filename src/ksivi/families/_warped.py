"""Gaussians with warped coordinates: families for many dimensions, whose density is known."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import (
    as_count,
    as_floats,
    as_single_key,
    describe,
    holds_for_all,
    require_points,
)
from .._core.numerics import full_precision
from .._core.registry import register
from .._core.roots import DenseRoot, LowRankRoot, Root
from .._core.warped import Warped
from ._family import AbstractFamily, few_sizes

_ORTHONORMAL = 1e-4
"""The largest entry of PᵀP − I that can be an error of rounding in single precision."""


@register
class WarpedGaussian(AbstractFamily):
    r"""x = loc + scale · sinh((asinh(y) + skew) / tail), with y ~ N(0, C), a correlation matrix C.

    Every coordinate has a skew and tails of its own. With skew 0 and tail 1 it is a Gaussian. The
    root of C is a full matrix, or of low rank plus diagonal in thousands of dimensions. The density
    is exact, and `fit` needs no training to find it. It is not for `train`.

    **Arguments:**

    - `loc`, `scale`, `skew`, `tail`: one number per coordinate. Scales and tails are positive.
    - `root`: a matrix R of shape (d, d); or a tuple of scales c, orthonormal vectors P of shape
        (d, r) and factors s of R = diag(c) (I + P (diag(s) − I) Pᵀ). C = R Rᵀ should have ones on
        its diagonal.

    ```python
    zero, one = jnp.zeros(3), jnp.ones(3)
    family = ksivi.families.WarpedGaussian(zero, one, 0.3 * one, 0.9 * one, jnp.eye(3))
    x = family.sample(jax.random.key(0), 1_000)
    ```

    Reference: Jones and Pewsey, Sinh-arcsinh distributions, Biometrika 2009.
    """

    has_density: ClassVar[Literal[True]] = True

    loc: Float[Array, " d"]
    scale: Float[Array, " d"]
    skew: Float[Array, " d"]
    tail: Float[Array, " d"]
    root: tuple[Array, ...]

    def __init__(self, loc: Any, scale: Any, skew: Any, tail: Any, root: Any):
        self.loc = as_floats(loc, "loc", "one finite number per coordinate")
        if self.loc.ndim != 1 or not len(self.loc) or not holds_for_all(self.loc, np.isfinite):
            raise ValueError(f"loc must be one finite number per coordinate, got {describe(loc)}")
        self.scale = _as_vector(scale, "scale", len(self.loc), positive=True)
        self.skew = _as_vector(skew, "skew", len(self.loc))
        self.tail = _as_vector(tail, "tail", len(self.loc), positive=True)
        self.root = _as_root(root, len(self.loc))

    @classmethod
    def of(cls, warped: Warped) -> "WarpedGaussian":
        """The family with these NumPy arrays."""
        root = warped.root
        return cls(*warped[:-1], root.matrix if isinstance(root, DenseRoot) else tuple(root))

    def on_host(self) -> Warped:
        """The same distribution in NumPy and double precision."""
        loc, scale, skew, tail, *root = (
            np.asarray(a, np.float64)
            for a in (self.loc, self.scale, self.skew, self.tail, *self.root)
        )
        return Warped(loc, scale, skew, tail, _root(root))

    @property
    def _warped(self) -> Warped:
        return Warped(self.loc, self.scale, self.skew, self.tail, _root(self.root))

    @property
    def dim(self) -> int:
        return len(self.loc)

    @property
    def dtype(self) -> jnp.dtype:
        """The precision of the parameters. Draws use it, whatever JAX's default precision is."""
        return self.loc.dtype

    def noise(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """All the randomness of n samples: ξ ~ N(0, I)."""
        return jax.random.normal(key, (n, self.dim), self.dtype)

    def transport(self, noise: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Samples x, and ∇ log q(x)."""
        with full_precision():
            x = self._warped.at(noise)
            return x, jax.grad(lambda y: self._warped.log_density(y).sum())(x)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n independent draws of x."""
        with full_precision():
            return self._warped.at(self.noise(as_single_key(key), as_count(n, "n")))

    def log_prob(
        self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int
    ) -> Float[Array, " n"]:
        """log q(x). It is exact: `key` and `num_mixing` are not used."""
        as_single_key(key), as_count(num_mixing, "num_mixing")
        require_points(x, self.dim)
        with full_precision():
            return self._warped.log_density(x.astype(self.dtype))

    def draw_size(self, n: int) -> int:
        return few_sizes(n)


def _root(parts: Any) -> Root:
    return DenseRoot(*parts) if len(parts) == 1 else LowRankRoot(*parts)


def _as_vector(value: Any, name: str, dim: int, positive: bool = False) -> Float[Array, " d"]:
    expected = f"{dim} finite {'positive ' if positive else ''}numbers, as many as loc"
    found, lowest = as_floats(value, name, expected), 0.0 if positive else -np.inf
    if found.shape != (dim,) or not holds_for_all(found, lambda a: (a > lowest) & (a < np.inf)):
        raise ValueError(f"{name} must be {expected}, got {describe(value)}")
    return found


def _as_root(root: Any, dim: int) -> tuple[Array, ...]:
    expected = (
        f"an invertible matrix of shape ({dim}, {dim}), or a tuple of positive scales, orthonormal "
        "vectors and positive factors of a low rank"
    )
    is_low_rank = isinstance(root, tuple) and len(root) == 3
    parts = root if is_low_rank else (root,)
    found = tuple(as_floats(part, "root", expected) for part in parts)
    shapes = [part.shape for part in found]
    if shapes != ([(dim,), (dim, *shapes[2]), shapes[2]] if is_low_rank else [(dim, dim)]):
        raise ValueError(f"root must be {expected}, got shapes {shapes}")
    if not (_is_low_rank_root(*found) if is_low_rank else holds_for_all(found[0], _is_invertible)):
        raise ValueError(f"root must be {expected}, got {describe(root)}")
    if is_low_rank and not holds_for_all(found[1], _are_orthonormal):
        raise ValueError(
            f"root must be {expected}, got vectors P with PᵀP far from I: for any matrix A, "
            "numpy.linalg.qr(A)[0] has orthonormal columns"
        )
    return found


def _is_low_rank_root(scales: Array, vectors: Array, factors: Array) -> bool:
    is_positive = lambda a: (a > 0) & (a < np.inf)  # noqa: E731
    are_positive = all(holds_for_all(part, is_positive) for part in (scales, factors))
    return are_positive and holds_for_all(vectors, np.isfinite)


def _are_orthonormal(vectors: Float[np.ndarray, "d r"]) -> bool:
    vectors = vectors.astype(np.float64)
    return np.allclose(vectors.T @ vectors, np.eye(vectors.shape[1]), atol=_ORTHONORMAL)


def _is_invertible(matrix: Float[np.ndarray, "d d"]) -> bool:
    return bool(np.isfinite(matrix).all() and np.isfinite(np.linalg.slogdet(matrix)[1]))
