"""Targets whose answer is known, and posteriors that are right or wrong by a known amount."""

import jax
import jax.numpy as jnp
import numpy as np

import ksivi
from ksivi.families import GaussianMixing, SemiImplicit, Triangular

KEY = jax.random.key(0)
COVARIANCE = np.array([[4.0, 1.8, 0.0], [1.8, 1.0, 0.03], [0.0, 0.03, 0.01]])
MEAN = np.array([3.0, -2.0, 0.5])
ROUGH = 3_000
"""The least number of draws that a mixture is fitted to: it is as exact as their moments."""


def gaussian(mean=MEAN):
    precision, centre = (
        jnp.asarray(np.linalg.inv(COVARIANCE), jnp.float32),
        jnp.asarray(mean, jnp.float32),
    )
    return ksivi.Target(lambda x: -0.5 * (x - centre) @ precision @ (x - centre), dim=3)


def two_modes():
    log_weights, means = jnp.log(jnp.array([0.7, 0.3])), jnp.array([[-4.0, 0.0], [4.0, 1.0]])
    return ksivi.Target(
        lambda x: jax.nn.logsumexp(log_weights - 0.5 * jnp.sum((x[None] - means) ** 2, axis=1)),
        dim=2,
    )


def family_of(mean, covariance):
    """Exactly N(mean, covariance), as a semi-implicit family with an affine layer."""
    root = np.linalg.cholesky(covariance)
    lower = np.tril(root, -1) + np.diag(np.log(np.diag(root)))
    base = SemiImplicit.location_scale(len(mean))
    layer = Triangular(jnp.asarray(mean, jnp.float32), jnp.asarray(lower, jnp.float32))
    return SemiImplicit(GaussianMixing(0), base.conditional, layer)


def posterior_of(mean=MEAN, covariance=COVARIANCE):
    return ksivi.Posterior.of(family_of(mean, covariance), gaussian())


def assert_equal_moments(draws, exact, n):
    """Means and squares of the draws, and products, within 4 standard errors of n exact draws."""
    for moment in (lambda x: x, lambda x: x**2, lambda x: x[:, :1] * x[:, 1:]):
        there, here = moment(np.asarray(exact)), moment(np.asarray(draws, np.float64))
        error = there.std(axis=0) * np.sqrt(1 / n + 1 / len(here) + 1 / len(there))
        assert (np.abs(here.mean(axis=0) - there.mean(axis=0)) < 4 * error).all()
