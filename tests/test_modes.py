"""Separate modes: annealed particles keep their shares, and a mode without draws is a doubt."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import ksivi
from ksivi.auto._anneal import anneal, begin
from ksivi.auto._gaussians import Gaussians
from ksivi.auto._modes import Modes, misses_modes, separate

SHARE, PLACE = 0.3, np.array([12.0, 0.0])


def log_density(x):
    """0.7 of a Gaussian at the origin, and 0.3 of a strongly bent banana at (12, 0)."""
    u, v = x[0] - 12, x[1]
    banana = norm.logpdf(u) + norm.logpdf(v - 1.5 * (u**2 - 1))
    return jnp.logaddexp(jnp.log(1 - SHARE) + jnp.sum(norm.logpdf(x)), jnp.log(SHARE) + banana)


def target():
    return ksivi.Target(log_density, dim=2)


def gaussians():
    """One for each mode. That of the banana has 2% of the mass by its ELBO, and not 30%."""
    means = jnp.array([[0.0, 0.0], [12.0, -1.5]])
    return Gaussians(means, jnp.stack([jnp.eye(2), jnp.diag(jnp.array([0.4, 1.0]))]), jnp.zeros(2))


def test_annealed_particles_have_the_shares_of_modes_that_are_no_gaussians():
    begin_key, key = jax.random.split(jax.random.key(0))
    first = begin(begin_key, target(), gaussians(), 3_000)
    found = anneal(key, target(), gaussians(), first)
    assert abs(found.log_evidence) < 0.15
    at_banana = found.draws[:, 0] > 6
    assert abs(at_banana.mean() - SHARE) < 0.05
    np.testing.assert_array_equal(at_banana, found.origins == 1)
    # Its own coordinate is normal, with the bend in the other one.
    u = found.draws[at_banana, 0] - 12
    assert abs(u.mean()) < 0.2
    assert abs(u.std() - 1) < 0.15


def test_points_that_the_density_connects_are_one_mode():
    points = np.array([[0.0, 0.0], [0.5, -0.5], [12.0, -1.5], [np.nan, 0.0], [0.0, 50.0]])
    np.testing.assert_allclose(separate(target(), points), [[0, 0], [12, -1.5]])


def test_a_mode_without_draws_is_a_doubt_that_names_the_place():
    rng = np.random.default_rng(0)
    particles = np.concatenate([rng.normal(size=(700, 2)), PLACE + rng.normal(size=(300, 2))])
    modes = Modes(np.stack([np.zeros(2), PLACE]), particles, np.repeat([0, 1], [700, 300]))
    np.testing.assert_allclose(modes.shares, [0.7, 0.3])
    at_one = rng.normal(size=(1_000, 2))
    doubt = misses_modes(at_one, modes, target())
    assert "a mode with about 30% of the mass holds 0.0% of the draws" in doubt
    assert "near x[0] = 12, x[1] = 0" in doubt
    some = np.concatenate([at_one, PLACE + rng.normal(size=(200, 2))])
    assert misses_modes(some, modes, target()) is None
    assert misses_modes(at_one, None, target()) is None
