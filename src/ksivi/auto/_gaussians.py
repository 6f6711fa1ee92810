"""Gaussian approximations by batch and match: closed-form updates that need only scores."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.compile import one_shot
from .._core.numerics import full_precision
from ..targets import Target

_NUM_ELBO_DRAWS = 256
_JITTER = 1e-8
LOCAL_SD = 0.1
"""Standard deviation of a Gaussian that starts at the end of a path."""
LEAST_MASS = 0.02
"""Smallest share of the mass of a mode that `fit` must find."""
_MAX_ELBO_GAP = 8.0
"""Gaussians whose ELBO is further below the best, in nats, are ignored."""


class Gaussians(NamedTuple):
    """Means, lower triangular roots of the covariances, and ELBOs of several Gaussians."""

    means: Float[Array, "m d"]
    roots: Float[Array, "m d d"]
    elbos: Float[Array, " m"]

    def usable(self) -> "Gaussians":
        """The Gaussians whose ELBO is finite and not far below the best."""
        elbos = np.asarray(self.elbos, np.float64)
        finite = np.isfinite(elbos) & np.isfinite(np.asarray(self.roots)).all(axis=(1, 2))
        top = elbos[finite].max() if finite.any() else 0.0
        return jax.tree.map(
            lambda a: jnp.asarray(np.asarray(a)[finite & (elbos > top - _MAX_ELBO_GAP)]), self
        )

    def each(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """Mean, root and ELBO of every Gaussian, in double precision."""
        parts = zip(*(np.asarray(part, np.float64) for part in self), strict=True)
        return [(mean, root, float(elbo)) for mean, root, elbo in parts]


@one_shot
def batch_and_match(
    key: PRNGKeyArray,
    target: Target,
    starts: Float[Array, "m d"],
    sds: Float[Array, " m"],
    num_steps: int = 100,
) -> Gaussians:
    r"""Gaussians N(μ, Σ) that minimise a score-based divergence to the target.

    Each starts from N(start, sd² I). An update draws a batch x with scores g, means x̄, ḡ and
    covariances C, Γ, and moves to

        Σ′ U Σ′ + Σ′ = V,   U = λ Γ + λ/(1+λ) ḡ ḡᵀ,   V = Σ + λ C + λ/(1+λ) (μ − x̄)(μ − x̄)ᵀ
        μ′ = (μ + λ (Σ′ ḡ + x̄)) / (1 + λ)

    where λ decreases as 1/t. A few dozen updates reach a Gaussian target of any scale.

    Reference: Cai, Modi, Pillaud-Vivien, Margossian, Gower, Blei and Saul, Batch and match, ICML
    2024.
    """
    keys = jax.random.split(key, len(starts))
    return Gaussians(
        *jax.vmap(lambda k, x, sd: _match(k, target, x, sd, num_steps))(keys, starts, sds)
    )


def _match(
    key: PRNGKeyArray, target: Target, start: Float[Array, " d"], sd: Scalar, num_steps: int
):
    size, dim = max(32, 2 * target.dim), target.dim
    elbo_key, *_ = keys = jax.random.split(key, num_steps + 1)

    def step(carry, inputs):
        mean, covariance = carry
        t, key = inputs
        x = mean[None] + jax.random.normal(key, (size, dim), mean.dtype) @ _root(covariance).T
        new = _update(mean, covariance, x, jax.vmap(target.score)(x), size * dim / (t + 1))
        is_finite = jnp.all(jnp.isfinite(new[0])) & jnp.all(jnp.isfinite(new[1]))
        return jax.tree.map(lambda a, b: jnp.where(is_finite, a, b), new, carry), None

    with full_precision():
        first = (start, sd**2 * jnp.eye(dim, dtype=start.dtype))
        (mean, covariance), _ = lax.scan(step, first, (jnp.arange(num_steps), keys[1:]))
        root = _root(covariance)
        return mean, root, _elbo(elbo_key, target, mean, root)


def _update(mean, covariance, x, scores, weight):
    """One update, from a batch and its scores.

    A point whose score is not finite is replaced by the mean, with score 0.
    """
    is_finite = jnp.all(jnp.isfinite(scores), axis=1, keepdims=True)
    scores, x = jnp.where(is_finite, scores, 0), jnp.where(is_finite, x, mean[None])
    x_bar, g_bar, share = jnp.mean(x, axis=0), jnp.mean(scores, axis=0), weight / (1 + weight)
    u = weight * _covariance(scores) + share * jnp.outer(g_bar, g_bar)
    v = covariance + weight * _covariance(x) + share * jnp.outer(mean - x_bar, mean - x_bar)
    # With V = R Rᵀ: Σ′ = 2 R (I + (I + 4 Rᵀ U R)^½)⁻¹ Rᵀ.
    root = _root(v)
    values, vectors = jnp.linalg.eigh(root.T @ u @ root)
    half = root @ vectors * jnp.sqrt(2 / (1 + jnp.sqrt(1 + 4 * jnp.maximum(values, 0))))[None]
    covariance = half @ half.T
    return (mean + weight * (covariance @ g_bar + x_bar)) / (1 + weight), covariance


def _covariance(x: Float[Array, "n d"]) -> Float[Array, "d d"]:
    centred = x - jnp.mean(x, axis=0, keepdims=True)
    return centred.T @ centred / len(x)


def _root(covariance: Float[Array, "d d"]) -> Float[Array, "d d"]:
    return jnp.linalg.cholesky(covariance + _JITTER * jnp.diag(jnp.diagonal(covariance)))


def _elbo(
    key: PRNGKeyArray, target: Target, mean: Float[Array, " d"], root: Float[Array, "d d"]
) -> Scalar:
    xi = jax.random.normal(key, (_NUM_ELBO_DRAWS, len(mean)), mean.dtype)
    x = mean[None] + xi @ root.T
    return jnp.mean(jax.vmap(target.log_density)(x) - log_gaussian(mean, root, x))


def log_gaussian(
    mean: Float[Array, " d"], root: Float[Array, "d d"], x: Float[Array, "n d"]
) -> Float[Array, " n"]:
    """log N(x; mean, root rootᵀ)."""
    distance2, log_det = standardised(mean, root, x)
    return -0.5 * distance2 - log_det - 0.5 * len(mean) * jnp.log(2 * jnp.pi)


def standardised(
    mean: Float[Array, " d"], root: Float[Array, "d d"], x: Float[Array, "n d"]
) -> tuple[Float[Array, " n"], Scalar]:
    """|root⁻¹ (x − mean)|², and log det root."""
    y = jax.scipy.linalg.solve_triangular(root, (x - mean[None]).T, lower=True)
    return jnp.sum(y**2, axis=0), jnp.sum(jnp.log(jnp.diagonal(root)))
