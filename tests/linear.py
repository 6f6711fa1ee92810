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


def exact_elbo():
    """log Z − KL(q‖p) for p = N(0, I)."""
    kl = 0.5 * (np.trace(COVARIANCE) + OFFSET @ OFFSET - 3 - np.linalg.slogdet(COVARIANCE)[1])
    return LOG_CONSTANT - kl


def posterior(coordinates=None):
    return ksivi.Posterior(linear_family(), coordinates, (("x", (3,)),))


def stretched(stretch, shift=0.0):
    """q with z scaled and shifted: its mean, its covariance, and the target, with evidence 1."""
    mean, covariance = (
        OFFSET + shift * WEIGHT.sum(axis=0),
        stretch**2 * WEIGHT.T @ WEIGHT + np.diag(np.exp(LOG_VAR)),
    )
    precision, centre = jnp.asarray(np.linalg.inv(covariance), float), jnp.asarray(mean, float)
    constant = -0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    return (
        mean,
        covariance,
        ksivi.Target(lambda x: constant - 0.5 * (x - centre) @ precision @ (x - centre), dim=3),
    )
