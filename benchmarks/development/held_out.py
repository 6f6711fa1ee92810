"""Posteriors that were written once `fit` was final: nothing was chosen or compared on them before their fits."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.stats import norm

from ksivi import from_numpyro

from .base import Case, by_nuts, exact


def wave() -> Case:
    """x₁ ~ N(0, 1.5²), x₂ ~ N(sin 2x₁, 0.25²)."""

    def log_density(x):
        return norm.logpdf(x[0], 0, 1.5) + norm.logpdf(x[1], jnp.sin(2 * x[0]), 0.25)

    def draw(key):
        u = jax.random.normal(key, (2,))
        return jnp.stack([1.5 * u[0], jnp.sin(3 * u[0]) + 0.25 * u[1]])

    return exact("wave", log_density, 2, draw)


def shell(dim: int = 4, radius: float = 3.0, width: float = 0.3) -> Case:
    """|x| ~ N(radius, width²), the direction uniform."""

    def log_density(x):
        r = jnp.sqrt(jnp.sum(x**2) + 1e-12)
        return norm.logpdf(r, radius, width) - (dim - 1) * jnp.log(r)

    def draw(key):
        direction_key, radius_key = jax.random.split(key)
        u = jax.random.normal(direction_key, (dim,))
        return (radius + width * jax.random.normal(radius_key)) * u / jnp.linalg.norm(u)

    return exact(f"shell-{dim}", log_density, dim, draw)


def rasch(right):
    """Item response: person i is right in item j with logit θᵢ − bⱼ."""
    people, items = right.shape
    spread = numpyro.sample("spread", dist.HalfNormal(1.5))
    theta = numpyro.sample("theta", dist.Normal(0, 1).expand([people]))
    b = numpyro.sample("b", dist.Normal(0, 2).expand([items]))
    numpyro.sample("right", dist.Bernoulli(logits=spread * theta[:, None] - b), obs=right)


def item_response() -> Case:
    rng = np.random.default_rng(21)
    logits = 1.3 * rng.normal(size=(25, 1)) - np.linspace(-2, 2, 7)
    right = (rng.uniform(size=logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    return by_nuts("item-response", from_numpyro(rasch, right))


def overdispersed(x, y, exposure):
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]))
    concentration = numpyro.sample("concentration", dist.Exponential(0.3))
    mean = exposure * jnp.exp(intercept + x @ beta)
    numpyro.sample("y", dist.NegativeBinomial2(mean, concentration), obs=y)


def negative_binomial() -> Case:
    rng = np.random.default_rng(22)
    x, exposure = rng.normal(size=(50, 3)), rng.uniform(0.5, 4, size=50)
    mean = exposure * np.exp(0.5 + x @ np.array([0.6, -0.3, 0.1]))
    return by_nuts(
        "negative-binomial",
        from_numpyro(overdispersed, x, rng.poisson(rng.gamma(1.2, mean / 1.2)), exposure),
    )


def weibull(x, time, died):
    """Survival with right censoring."""
    shape = numpyro.sample("shape", dist.LogNormal(0, 1))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]))
    log_hazard = shape * (jnp.log(time) - x @ beta)
    events = jnp.log(shape) - jnp.log(time) + log_hazard
    numpyro.factor("likelihood", jnp.sum(jnp.where(died, events, 0) - jnp.exp(log_hazard)))


def survival() -> Case:
    rng = np.random.default_rng(23)
    x = np.stack([np.ones(40), rng.integers(0, 2, 40), rng.normal(size=40)], axis=1)
    time, end = np.exp(x @ np.array([1.0, 0.5, -0.4])) * rng.weibull(1.6, 40), rng.uniform(1, 5, 40)
    return by_nuts("survival", from_numpyro(weibull, x, np.minimum(time, end), time < end))


def correlated_outcomes(y):
    dim = y.shape[1]
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([dim]))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2).expand([dim]))
    root = numpyro.sample("root", dist.LKJCholesky(dim, 2.0))
    numpyro.sample("y", dist.MultivariateNormal(mu, scale_tril=sigma[:, None] * root), obs=y)


def correlations() -> Case:
    rng = np.random.default_rng(24)
    y = rng.normal(size=(12, 4)) @ np.array(
        [[1.0, 0.9, 0, 0.3], [0, 0.5, 0.4, 0], [0, 0, 1, -0.8], [0, 0, 0, 0.4]]
    )
    return by_nuts("correlations", from_numpyro(correlated_outcomes, y))


def local_level(y, seen):
    """A random walk with noise, a third of it not observed."""
    drift = numpyro.sample("drift", dist.LogNormal(-0.7, 0.5))
    noise = numpyro.sample("noise", dist.LogNormal(-0.7, 0.5))
    level = numpyro.sample("level", dist.GaussianRandomWalk(drift, num_steps=len(y)))
    numpyro.sample("y", dist.Normal(level, noise).mask(seen), obs=y)


def random_walk() -> Case:
    rng = np.random.default_rng(26)
    y = np.cumsum(0.5 * rng.normal(size=40)) + 0.7 * rng.normal(size=40)
    seen = rng.uniform(size=40) < 0.67
    return by_nuts(
        "random-walk", from_numpyro(local_level, np.where(seen, y, 0), seen), careful=True
    )


def inflated(x, y):
    """Poisson counts, some of them zeros for another reason."""
    zero = numpyro.sample("zero", dist.Beta(1, 1))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]))
    numpyro.sample("y", dist.ZeroInflatedPoisson(zero, jnp.exp(x @ beta)), obs=y)


def zero_inflated() -> Case:
    rng = np.random.default_rng(27)
    x = np.stack([np.ones(35), rng.normal(size=35)], axis=1)
    y = rng.poisson(np.exp(x @ np.array([0.2, 0.5]))) * (rng.uniform(size=35) > 0.35)
    return by_nuts("zero-inflated", from_numpyro(inflated, x, y))


def growth(t, y):
    """A logistic curve of which only the beginning is seen: its ceiling is hardly known."""
    ceiling = numpyro.sample("ceiling", dist.LogNormal(2, 1))
    rate = numpyro.sample("rate", dist.LogNormal(0, 0.7))
    middle = numpyro.sample("middle", dist.Normal(3, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    numpyro.sample("y", dist.Normal(ceiling * jax.nn.sigmoid(rate * (t - middle)), sigma), obs=y)


def growth_curve() -> Case:
    rng = np.random.default_rng(28)
    t = np.linspace(0, 3, 15)
    return by_nuts(
        "growth-curve",
        from_numpyro(growth, t, 6 / (1 + np.exp(-1.2 * (t - 3))) + 0.3 * rng.normal(size=15)),
    )


def cases() -> list[Case]:
    return [
        wave(),
        shell(),
        item_response(),
        negative_binomial(),
        survival(),
        correlations(),
        random_walk(),
        zero_inflated(),
        growth_curve(),
    ]
