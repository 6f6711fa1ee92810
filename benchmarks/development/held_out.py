"""Posteriors that no stage of `fit` was chosen on: two modes, a sharp bend, a regression, simplices, slopes.

Its sizes (samples, K, steps) were compared on all posteriors, these among them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from ksivi import from_numpyro

from .base import Case, by_nuts, exact


def two_modes(dim: int = 10, gap: float = 6.0) -> Case:
    """Gaussians of weights 0.65 and 0.35, six standard deviations apart along the diagonal."""
    mean, log_weights = jnp.full(dim, gap / 2 / dim**0.5), jnp.log(jnp.array([0.65, 0.35]))

    def log_density(x):
        parts = jnp.stack([jnp.sum(norm.logpdf(x, -mean)), jnp.sum(norm.logpdf(x, mean))])
        return logsumexp(log_weights + parts)

    def draw(key):
        which_key, normal_key = jax.random.split(key)
        sign = jnp.where(jax.random.bernoulli(which_key, 0.35), 1.0, -1.0)
        return sign * mean + jax.random.normal(normal_key, (dim,))

    return exact("two-modes-10", log_density, dim, draw)


def twisted(dim: int = 4, bend: float = 1.0) -> Case:
    """x₁ ~ N(0, 2²), x₂ ~ N(bend (x₁² − 4)/4, 0.5²), the rest N(x₁/2, 1): one sharp bend and correlations."""

    def following(x):
        return bend * (x**2 - 4) / 4

    def log_density(x):
        rest = jnp.sum(norm.logpdf(x[2:], x[0] / 2))
        return norm.logpdf(x[0], 0, 2) + norm.logpdf(x[1], following(x[0]), 0.5) + rest

    def draw(key):
        u = jax.random.normal(key, (dim,))
        first = 2 * u[0]
        return jnp.concatenate([jnp.stack([first, following(first) + 0.5 * u[1]]), first / 2 + u[2:]])

    return exact("twisted-4", log_density, dim, draw)


def student_regression(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 5).expand([x.shape[1]]))
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    numpyro.sample("y", dist.StudentT(nu, x @ beta, sigma), obs=y)


def robust_regression() -> Case:
    rng = np.random.default_rng(7)
    x = np.concatenate([np.ones((80, 1)), rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4))], axis=1)
    y = x @ np.array([1.0, 2, -1, 0, 0.5]) + rng.standard_t(3, size=80)
    return by_nuts("robust-regression", from_numpyro(student_regression, x, y))


def shares(counts):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.full(counts.shape[-1], 0.7)))
    concentration = numpyro.sample("concentration", dist.LogNormal(2, 1))
    numpyro.sample("counts", dist.DirichletMultinomial(concentration * weights, counts.sum(-1)), obs=counts)


def category_shares() -> Case:
    rng = np.random.default_rng(8)
    counts = np.stack([rng.multinomial(12, rng.dirichlet([6.0, 3, 1, 0.5])) for _ in range(15)])
    return by_nuts("category-shares", from_numpyro(shares, counts))


def varying_slopes(x, y, group, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]))
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    b = mu + tau * z
    numpyro.sample("y", dist.Normal(b[group, 0] + b[group, 1] * x, sigma), obs=y)


def slopes() -> Case:
    rng = np.random.default_rng(9)
    group = np.repeat(np.arange(12), 6)
    x = rng.normal(size=72)
    b = np.array([1.0, -0.5]) + np.array([0.8, 0.4]) * rng.normal(size=(12, 2))
    y = b[group, 0] + b[group, 1] * x + 0.5 * rng.normal(size=72)
    return by_nuts("varying-slopes", from_numpyro(varying_slopes, x, y, group, 12))


def cases() -> list[Case]:
    return [
        two_modes(),
        twisted(),
        robust_regression(),
        category_shares(),
        slopes(),
    ]
