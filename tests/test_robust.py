"""KSIVI with one setting for every target: its coordinates, its start, and its draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.comparison import RobustPlan
from ksivi.objectives import Tilt

KEY = jax.random.key(0)
MEAN, ROOT = (
    jnp.array([100.0, -3.0, 0.01]),
    jnp.array([[50.0, 0, 0], [1.0, 0.5, 0], [0, 0.01, 0.01]]),
)


def log_density(x):
    return -0.5 * jnp.sum(jax.scipy.linalg.solve_triangular(ROOT, x - MEAN, lower=True) ** 2)


TARGETS = {
    "log density": ksivi.Target(log_density, 3),
    "score": ksivi.Target.from_score(jax.grad(log_density), 3),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_whitened_coordinates_have_mean_0_and_covariance_1(target):
    found = ksivi.auto.whitened(KEY, target)
    assert found.has_log_density == target.has_log_density
    to_standard = np.linalg.solve(ROOT, np.asarray(found.coordinates.scale))
    np.testing.assert_allclose(to_standard @ to_standard.T, np.eye(3), atol=0.02)
    np.testing.assert_allclose(np.linalg.solve(ROOT, found.coordinates.loc - MEAN), 0, atol=0.02)


def test_coordinates_in_many_dimensions():
    sds = jnp.linspace(0.1, 10, 200)
    target = ksivi.Target(lambda x: -0.5 * jnp.sum((x / sds) ** 2), 200)
    found = ksivi.auto.whitened(KEY, target)
    root = np.asarray(found.coordinates.scale)
    np.testing.assert_allclose((root @ root.T) / np.outer(sds, sds), np.eye(200), atol=0.1)
    np.testing.assert_allclose(found.coordinates.loc / sds, 0, atol=0.1)


@pytest.mark.parametrize("dim", [1, 30])
def test_the_start_has_the_widths_of_the_plan(dim):
    plan = RobustPlan(spread=0.6, sd=0.3)
    family = plan.family(KEY, dim)
    means, log_vars = jax.vmap(family.conditional.parameters)(
        family.mixing.sample(KEY, 4_000, jnp.float32)
    )
    assert jnp.std(means, axis=0).mean() == pytest.approx(0.6, rel=0.1)
    assert jnp.exp(0.5 * log_vars).mean() == pytest.approx(0.3, rel=0.1)


def test_the_tilt_falls_to_none():
    tilt = Tilt(across=0.8, growth=1.0, horizon=100)
    halfway, end = tilt.at(jnp.array(50)), tilt.at(jnp.array(200))
    assert (halfway.across, halfway.growth, halfway.steep) == (pytest.approx(0.4), 0.5, 0)
    f = jnp.ones((1, 3))
    np.testing.assert_allclose(end(f, 2 * f, f), f, rtol=1e-6)
