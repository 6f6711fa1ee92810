"""A linear-Gaussian family, whose q(x) is known, and a normal target, for the tests of objectives."""

import jax
import jax.numpy as jnp
import numpy as np

import ksivi
from ksivi.families import MLP, Constant, DiagonalGaussian, GaussianMixing

KEY = jax.random.key(0)
WEIGHT = np.array([[0.8, -0.3, 0.4], [0.2, 0.9, -0.5]])
OFFSET, LOG_VAR = np.array([0.5, -0.2, 0.1]), np.array([-1.0, -0.5, -1.5])
COVARIANCE = WEIGHT.T @ WEIGHT + np.diag(np.exp(LOG_VAR))
LOG_CONSTANT = 3.0


def linear_family(mixing=None):
    """x = Wᵀz + b + σξ, which is N(b, WᵀW + diag σ²)."""
    mean = MLP(KEY, (2, 3))
    mean = jax.tree.map(
        lambda a, b: jnp.asarray(b, a.dtype),
        mean,
        jax.tree.unflatten(jax.tree.structure(mean), [WEIGHT, OFFSET]),
    )
    return ksivi.SemiImplicit(
        mixing or GaussianMixing(2), DiagonalGaussian(mean, Constant(jnp.asarray(LOG_VAR, float)))
    )


def normal_target():
    """N(0, I) times exp(3), so that the evidence is known."""
    return ksivi.Target(lambda x: LOG_CONSTANT - 0.5 * jnp.sum(x**2 + jnp.log(2 * jnp.pi)), dim=3)
