"""Regressions with rows, and their exact posteriors, for tests of passes and of fits."""

import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

DIM, NOISE = 3, 0.7
COEFFICIENTS = np.array([1.0, -0.5, 0.2])


def log_prior(x):
    return -0.5 * jnp.sum(x**2)


def log_likelihood(x, rows):
    return -0.5 * jnp.sum((rows["y"] - rows["x"] @ x) ** 2) / NOISE**2


def logistic(x, rows):
    logits = rows["x"] @ x
    return jnp.sum(rows["y"] * logits - jnp.logaddexp(0.0, logits))


def poisson(x, rows):
    logs = rows["x"] @ x
    return jnp.sum(rows["y"] * logs - jnp.exp(logs))


def regression(num_rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, DIM)).astype(np.float32)
    y = x @ COEFFICIENTS + NOISE * rng.normal(size=num_rows)
    return {"x": x, "y": y.astype(np.float32)}


def exact(data):
    """Mean, covariance and log evidence of the regression's posterior, for this density."""
    x, y = data["x"].astype(float), data["y"].astype(float)
    precision = x.T @ x / NOISE**2 + np.eye(DIM)
    mean = np.linalg.solve(precision, x.T @ y) / NOISE**2
    height = -0.5 * mean @ mean - 0.5 * np.sum((y - x @ mean) ** 2) / NOISE**2
    _, log_det = np.linalg.slogdet(precision)
    return mean, np.linalg.inv(precision), height + 0.5 * (DIM * np.log(2 * np.pi) - log_det)


def target_of(data, likelihood=log_likelihood, dim=DIM, batch_size=100):
    return ksivi.Target.from_data(log_prior, likelihood, data, dim, batch_size=batch_size)


def rare_columns(num_rows, response):
    """An intercept, a common column, and two columns that few rows have."""
    rng = np.random.default_rng(1)
    x = np.stack(
        [
            np.ones(num_rows),
            rng.normal(size=num_rows),
            rng.random(num_rows) < 2e-3,
            rng.random(num_rows) < 5e-4,
        ],
        axis=1,
    ).astype(np.float32)
    y = response(rng, x @ np.array([-0.5, 0.5, 1.0, -1.0]))
    return {"x": x, "y": y.astype(np.float32)}


def coins(rng, logits):
    return rng.random(len(logits)) < 1 / (1 + np.exp(-logits))


def counts(rng, logs):
    return rng.poisson(np.exp(logs))


def plate(data):
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def model(x, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([DIM]).to_event(1))
        with numpyro.plate("rows", len(x), subsample_size=100) as rows:
            numpyro.sample("y", dist.Normal(x[rows] @ beta, NOISE), obs=y[rows])

    return ksivi.from_numpyro(model, data["x"], data["y"])
