"""Priors and likelihoods of the large posteriors, on unconstrained coordinates, and maps between their forms."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, sigmoid
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

Point = Float[Array, " d"]
Draws = Float[np.ndarray, "n d"]

PRIOR_SCALE = 2.0
TAU_SCALE, VARIANCE_PRIOR = 0.1, (3.0, 2.0)


def logistic_prior(beta: Point) -> Array:
    return -0.5 * jnp.sum((beta / PRIOR_SCALE) ** 2)


def logistic_likelihood(beta: Point, table: Array) -> Array:
    """y in the last column, 0 or 1."""
    return jnp.sum(log_sigmoid((2 * table[:, -1] - 1) * (table[:, :-1] @ beta)))


def _half_normal(log_scale: Array) -> Array:
    """The log density of t = log τ for τ ~ N⁺(0, 1)."""
    return log_scale - 0.5 * jnp.exp(2 * log_scale)


def _normal(x: Array, mean: Array, log_scale: Array) -> Array:
    """∑ log N(xᵢ; mean, exp(log_scale)²) up to a constant."""
    return -0.5 * jnp.sum(((x - mean) * jnp.exp(-log_scale)) ** 2) - x.size * log_scale


def _poisson_hyper(x: Point) -> Array:
    return -0.5 * x[0] ** 2 + _half_normal(x[1])


def _poisson_prior(x: Point) -> Array:
    """x = (μ, log τ, z): μ ~ N(0, 1), τ ~ N⁺(0, 1), z_g ~ N(0, 1)."""
    return _poisson_hyper(x) - 0.5 * jnp.sum(x[2:] ** 2)


def _poisson_centred_prior(x: Point) -> Array:
    """x = (μ, log τ, θ): θ_g ~ N(μ, τ)."""
    return _poisson_hyper(x) + _normal(x[2:], x[0], x[1])


def _poisson_likelihood(x: Point, groups: dict[str, Array]) -> Array:
    return _poisson_centred_likelihood(x.at[2:].set(x[0] + jnp.exp(x[1]) * x[2:]), groups)


def _poisson_centred_likelihood(x: Point, groups: dict[str, Array]) -> Array:
    """y_gj ~ Poisson(e_gj exp(θ_g)); a row is a group."""
    theta = x[2:, None]
    return jnp.sum(groups["y"] * theta - groups["exposure"] * jnp.exp(theta))


POISSON = {
    False: (_poisson_prior, _poisson_likelihood),
    True: (_poisson_centred_prior, _poisson_centred_likelihood),
}
"""Prior and likelihood by whether the effects are centred."""


def poisson_centred(draws: Draws) -> Draws:
    mu, log_tau = draws[:, :1], draws[:, 1:2]
    return np.concatenate([mu, log_tau, mu + np.exp(log_tau) * draws[:, 2:]], axis=1)


def _negative_binomial_hyper(x: Point) -> Array:
    """x = (μ_a, log τ_a, μ_b, log τ_b, log φ, a, b)."""
    means = -0.5 * (x[0] ** 2 + x[2] ** 2 + (x[4] - 1) ** 2)
    return means + _half_normal(x[1]) + _half_normal(x[3])


def _negative_binomial_prior(x: Point) -> Array:
    return _negative_binomial_hyper(x) - 0.5 * jnp.sum(x[5:] ** 2)


def _negative_binomial_centred_prior(x: Point) -> Array:
    a, b = jnp.split(x[5:], 2)
    return _negative_binomial_hyper(x) + _normal(a, x[0], x[1]) + _normal(b, x[2], x[3])


def _negative_binomial_centred_likelihood(x: Point, rows: dict[str, Array]) -> Array:
    """y ~ NB(mean exp(a_g + b_g x), variance mean + mean² / φ)."""
    a, b = jnp.split(x[5:], 2)
    eta = a[rows["group"]] + b[rows["group"]] * rows["x"]
    y, shape = rows["y"], jnp.exp(x[4])
    counted = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1)
    return jnp.sum(counted + shape * x[4] + y * eta - (y + shape) * jnp.logaddexp(x[4], eta))


def _negative_binomial_likelihood(x: Point, rows: dict[str, Array]) -> Array:
    z, w = jnp.split(x[5:], 2)
    effects = x[0] + jnp.exp(x[1]) * z, x[2] + jnp.exp(x[3]) * w
    return _negative_binomial_centred_likelihood(jnp.concatenate([x[:5], *effects]), rows)


NEGATIVE_BINOMIAL = {
    False: (_negative_binomial_prior, _negative_binomial_likelihood),
    True: (_negative_binomial_centred_prior, _negative_binomial_centred_likelihood),
}


def negative_binomial_noncentred(draws: Draws) -> Draws:
    a, b = np.split(draws[:, 5:], 2, axis=1)
    z = (a - draws[:, :1]) * np.exp(-draws[:, 1:2])
    w = (b - draws[:, 2:3]) * np.exp(-draws[:, 3:4])
    return np.concatenate([draws[:, :5], z, w], axis=1)


def log_variances(mean, phi, rest, sigma, z: Float[Array, " t"]) -> Float[Array, " t"]:
    """h₁ = m + σ z₁ / √(1 − φ²), h_t = m + φ (h_{t−1} − m) + σ z_t, without a loop over time.

    **Arguments:**

    - `rest`: 1 − φ², which is 0 in single precision if it is computed from a φ near 1.
    """

    def join(early, late):
        return early[0] * late[0], late[0] * early[1] + late[1]

    moves = (sigma * z).at[0].divide(jnp.sqrt(rest))
    return mean + jax.lax.associative_scan(join, (jnp.full_like(z, phi), moves))[1]


def _volatility_hyper(x: Point) -> Array:
    """x = (m, a, log σ, …): m ~ N(0, 2), sigmoid(a) = (φ + 1)/2 ~ Beta(20, 3/2), σ ~ N⁺(0, 1/2)."""
    persistence = 20 * log_sigmoid(x[1]) + 1.5 * log_sigmoid(-x[1])
    return -0.125 * x[0] ** 2 + persistence + x[2] - 2 * jnp.exp(2 * x[2])


def _volatility_prior(x: Point) -> Array:
    return _volatility_hyper(x) - 0.5 * jnp.sum(x[3:] ** 2)


def _volatility_centred_prior(x: Point) -> Array:
    phi, rest = _persistence(x)
    away = x[3:] - x[0]
    first = _normal(away[:1], jnp.zeros(()), x[2] - 0.5 * jnp.log(rest))
    return _volatility_hyper(x) + first + _normal(away[1:], phi * away[:-1], x[2])


def _persistence(x: Point) -> tuple[Array, Array]:
    """φ and 1 − φ²."""
    return jnp.tanh(x[1] / 2), 4 * sigmoid(x[1]) * sigmoid(-x[1])


def _volatility_likelihood(x: Point, y: Array) -> Array:
    h = log_variances(x[0], *_persistence(x), jnp.exp(x[2]), x[3:])
    return -0.5 * jnp.sum(h + y**2 * jnp.exp(-h))


def _volatility_centred_likelihood(x: Point, y: Array) -> Array:
    return -0.5 * jnp.sum(x[3:] + y**2 * jnp.exp(-x[3:]))


VOLATILITY = {
    False: (_volatility_prior, _volatility_likelihood),
    True: (_volatility_centred_prior, _volatility_centred_likelihood),
}


def volatility_centred(draws: Draws) -> Draws:
    m, sigma = draws[:, 0], np.exp(draws[:, 2])
    phi = np.tanh(draws[:, 1] / 2)
    root = 2 * np.exp(-0.5 * (np.logaddexp(0, draws[:, 1]) + np.logaddexp(0, -draws[:, 1])))
    h = np.empty_like(draws[:, 3:])
    h[:, 0] = m + sigma / root * draws[:, 3]
    for t in range(1, h.shape[1]):
        h[:, t] = m + phi * (h[:, t - 1] - m) + sigma * draws[:, 3 + t]
    return np.concatenate([draws[:, :3], h], axis=1)


def _half_cauchy(log_scale: Array, unit: float = 1.0) -> Array:
    """The log density of t = log λ for λ ~ C⁺(unit), summed."""
    return jnp.sum(log_scale - jnp.logaddexp(0.0, 2 * (log_scale - jnp.log(unit))))


def horseshoe_prior(x: Point) -> Array:
    """x = (log τ, log λ, z, log v): τ ~ C⁺(0.1), λᵢ ~ C⁺(1), zᵢ ~ N(0, 1), v ~ IG(3, 2)."""
    log_lambda, z = jnp.split(x[1:-1], 2)
    shape, scale = VARIANCE_PRIOR
    variance = -shape * x[-1] - scale * jnp.exp(-x[-1])
    scales = _half_cauchy(x[:1], TAU_SCALE) + _half_cauchy(log_lambda)
    return scales - 0.5 * jnp.sum(z**2) + variance


def horseshoe_likelihood(x: Point, rows: dict[str, Array]) -> Array:
    log_lambda, z = jnp.split(x[1:-1], 2)
    away = rows["y"] - rows["x"] @ (jnp.exp(x[0] + log_lambda) * z)
    return -0.5 * jnp.sum(away**2) * jnp.exp(-x[-1]) - 0.5 * len(away) * x[-1]
