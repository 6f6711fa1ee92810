"""Mixtures of Gaussians with full covariances: families whose density is known."""

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from .._core.checks import (
    as_count,
    as_floats,
    as_positive,
    as_single_key,
    describe,
    holds_for_all,
    require_points,
)
from .._core.mixtures import Mixture
from .._core.numerics import full_precision
from .._core.registry import register
from ._family import AbstractFamily, few_sizes

Noise = tuple[Int[Array, " n"], Float[Array, "n d"]]


class _Gaussian(NamedTuple):
    """N(mean, root rootᵀ), and what it does with many points."""

    mean: Float[Array, " d"]
    root: Float[Array, "d d"]

    def place(self, xi: Float[Array, "n d"]) -> Float[Array, "n d"]:
        with full_precision():
            return self.mean[None] + xi @ self.root.T

    def scores(self, xi: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """∇ log N at the points that ξ was mapped to: −R⁻ᵀ ξ."""
        return -solve_triangular(self.root, xi.T, lower=True, trans="T").T

    def log_prob(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        xi = solve_triangular(self.root, (x - self.mean[None]).T, lower=True)
        log_det = jnp.sum(jnp.log(jnp.diagonal(self.root)))
        return -0.5 * jnp.sum(xi**2 + jnp.log(2 * jnp.pi), axis=0) - log_det


@register
class GaussianMixture(AbstractFamily):
    r"""q(x) = Σₖ wₖ N(x; μₖ, Rₖ Rₖᵀ). One Gaussian is a mixture of one.

    Its density is exact, and `fit` needs no training to find it. It is not for `train`.

    **Arguments:**

    - `shares`: w, one positive number per Gaussian. They are normalised to sum to 1.
    - `means`: μ, one row per Gaussian.
    - `roots`: R, the lower triangular Cholesky factors of the covariances.

    ```python
    means, roots = jnp.array([[-2.0, 0.0], [2.0, 0.0]]), jnp.stack([jnp.eye(2)] * 2)
    family = ksivi.families.GaussianMixture(jnp.array([0.7, 0.3]), means, roots)
    x = family.sample(jax.random.key(0), 1_000)
    ```
    """

    has_density: ClassVar[Literal[True]] = True

    shares: Float[Array, " k"]
    means: Float[Array, "k d"]
    roots: Float[Array, "k d d"]

    def __init__(self, shares: Any, means: Any, roots: Any):
        shares = as_floats(shares, "shares", "one positive number per Gaussian")
        if (
            shares.ndim != 1
            or not len(shares)
            or not holds_for_all(shares, lambda w: (w > 0) & (w < np.inf))
        ):
            raise ValueError(
                f"shares must be one positive number per Gaussian, got {describe(shares)}"
            )
        self.shares = shares / shares.sum() if _is_traced(shares) else _normalised(shares)
        self.means = _as_means(means, len(shares))
        self.roots = _as_roots(roots, self.means.shape)

    @classmethod
    def of(cls, mixture: Mixture) -> "GaussianMixture":
        """The mixture with these NumPy arrays. Shares that are 0 in JAX's precision are left out."""
        shares = np.asarray(mixture.shares, jnp.result_type(float))
        kept = shares > 0
        return cls(shares[kept], mixture.means[kept], mixture.roots[kept])

    def on_host(self) -> Mixture:
        """The same mixture in NumPy and double precision."""
        return Mixture(*(np.asarray(a, np.float64) for a in (self.shares, self.means, self.roots)))

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def dtype(self) -> jnp.dtype:
        """The precision of the parameters. Draws use it, whatever JAX's default precision is."""
        return self.means.dtype

    def noise(self, key: PRNGKeyArray, n: int) -> Noise:
        """All the randomness of n samples: the Gaussian of each, and its ξ ~ N(0, I)."""
        which_key, xi_key = jax.random.split(key)
        chosen = jax.random.categorical(which_key, jnp.log(self.shares), shape=(n,))
        return chosen, jax.random.normal(xi_key, (n, self.dim), self.dtype)

    def transport(self, noise: Noise) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """Samples x, and the score of the Gaussian that each came from."""
        return self._each(noise, _Gaussian.place), self._each(noise, _Gaussian.scores)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n independent draws of x."""
        return self._each(self.noise(as_single_key(key), as_count(n, "n")), _Gaussian.place)

    def log_prob(
        self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int
    ) -> Float[Array, " n"]:
        """log q(x). It is exact: `key` and `num_mixing` are not used."""
        as_single_key(key), as_count(num_mixing, "num_mixing")
        require_points(x, self.dim)
        return self._log_prob(x.astype(self.dtype))

    def sample_and_log_prob(
        self, key: PRNGKeyArray, n: int, num_mixing: int
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """n draws of x with log q(x). It is exact: `num_mixing` is not used."""
        x = self.sample(key, n)
        return x, self._log_prob(x)

    def draw_size(self, n: int) -> int:
        return few_sizes(n)

    def widened(self, scale: float | Scalar) -> "GaussianMixture":
        """Half of this mixture, and half of the same with every Gaussian wider by a factor."""
        factor = as_positive(scale, "scale").astype(self.dtype)
        return GaussianMixture(
            jnp.concatenate([self.shares, self.shares]),
            jnp.concatenate([self.means, self.means]),
            jnp.concatenate([self.roots, factor * self.roots]),
        )

    def _each(self, noise: Noise, function: Any) -> Float[Array, "n d"]:
        """What the chosen Gaussian of each row makes of its ξ.

        Each Gaussian in turn takes all rows in one product. Gathering the root of every row would
        need n matrices.
        """
        chosen, xi = noise

        def add(total: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
            index, *gaussian = part
            mine = (chosen == index)[:, None]
            return jnp.where(mine, function(_Gaussian(*gaussian), xi), total), None

        parts = jnp.arange(len(self.shares)), self.means, self.roots
        return lax.scan(add, jnp.zeros_like(xi), parts)[0]

    def _log_prob(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        parts = lax.map(lambda part: _Gaussian(*part).log_prob(x), (self.means, self.roots))
        return jax.nn.logsumexp(parts + jnp.log(self.shares)[:, None], axis=0)


def _as_means(means: Any, count: int) -> Float[Array, "k d"]:
    expected = f"finite numbers of shape ({count}, d)"
    found = as_floats(means, "means", expected)
    if (
        found.ndim != 2
        or len(found) != count
        or not found.shape[1]
        or not holds_for_all(found, np.isfinite)
    ):
        raise ValueError(f"means must be {expected}, got {describe(means)}")
    return found


def _as_roots(roots: Any, shape: tuple[int, ...]) -> Float[Array, "k d d"]:
    wanted = (*shape, shape[1])
    expected = f"lower triangular matrices with positive diagonals, of shape {wanted}"
    found = as_floats(roots, "roots", expected)
    if found.shape != wanted or not holds_for_all(found, _are_roots):
        raise ValueError(f"roots must be {expected}, got {describe(roots)}")
    return found


def _are_roots(roots: Float[np.ndarray, "k d d"]) -> bool:
    is_lower = np.isfinite(roots).all() and not np.triu(roots, 1).any()
    return bool(is_lower and (np.diagonal(roots, axis1=1, axis2=2) > 0).all())


def _is_traced(values: Array) -> bool:
    return isinstance(values, jax.core.Tracer)


def _normalised(shares: Float[Array, " k"]) -> Float[Array, " k"]:
    # In NumPy, because each operation on JAX arrays outside of a program compiles one.
    known = np.asarray(shares, np.float64)
    return jnp.asarray((known / known.sum()).astype(shares.dtype))
