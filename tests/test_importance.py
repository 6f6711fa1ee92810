"""Importance weights, evidence and log densities on a linear-Gaussian family, where q(x) is known."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import ksivi
from ksivi._core.numerics import truncated_weights
from ksivi.families import GaussianMixing, WideMixing
from linear import (
    COVARIANCE,
    KEY,
    LOG_CONSTANT,
    OFFSET,
    exact_elbo,
    normal_target,
    posterior,
    stretched,
)

EXACT = multivariate_normal(OFFSET, COVARIANCE)
# These weights have such heavy tails that estimates depend on the key.
DRAWS = jax.random.key(13)


@pytest.mark.parametrize("num_mixing", [1, 10, 1_000])
def test_the_evidence_estimate_covers_the_exact_one(num_mixing):
    result = ksivi.diagnostics.importance(
        DRAWS, normal_target(), posterior(), num_samples=40_000, num_mixing=num_mixing
    )
    assert abs(result.log_evidence - LOG_CONSTANT) < 4 * result.log_evidence_error
    assert result.log_evidence_error < 0.05
    assert result.elbo < exact_elbo() + 4 * result.elbo_error
    if num_mixing == 1_000:
        assert abs(result.elbo - exact_elbo()) < 4 * result.elbo_error + 0.005
    assert result.num_mixing == num_mixing
    np.testing.assert_allclose(result.weights.sum(), 1)
    assert 1 < result.effective_sample_size <= 40_000


def test_weighted_draws_have_the_targets_moments():
    result = ksivi.diagnostics.importance(DRAWS, normal_target(), posterior(), num_samples=40_000)
    mean = result.weights @ result.draws
    error = np.sqrt(result.weights**2 @ (result.draws - mean) ** 2)
    assert np.all(np.abs(mean) < 4 * error)
    np.testing.assert_allclose(result.weights @ result.draws**2 - mean**2, 1, atol=0.1)


def test_weights_do_not_depend_on_the_coordinates_of_training():
    affine = ksivi.targets.Affine(jnp.array([1.0, -1.0, 0.5]), jnp.array([0.5, 1.5, 0.8]))
    moved = posterior(affine)
    whitened = normal_target().whitened(affine.loc, affine.scale)
    results = [
        ksivi.diagnostics.importance(KEY, t, moved, num_samples=20_000)
        for t in (normal_target(), whitened)
    ]
    np.testing.assert_allclose(results[0].log_weights, results[1].log_weights, rtol=1e-5)
    assert abs(results[0].log_evidence - LOG_CONSTANT) < 4 * results[0].log_evidence_error


def test_a_wider_mixing_has_the_density_that_it_draws_from():
    base = GaussianMixing(3)
    wide = WideMixing(base, 1.5)
    z = wide.sample(KEY, 100_000)
    ratio = np.exp(np.asarray(jax.vmap(base.log_prob)(z) - jax.vmap(wide.log_prob)(z), np.float64))
    assert ratio.max() <= 2 * (1 + 1e-5)
    for values in (ratio, ratio * np.asarray(z)[:, 0] ** 2):
        assert abs(values.mean() - 1) < 4 * values.std() / np.sqrt(len(values))


def test_a_wider_proposal_keeps_the_evidence_and_makes_weights_light():
    """The weights of q have no finite variance; the wider proposal has bounded weights."""
    target = stretched(1.6)[2]
    plain, wide = (
        ksivi.diagnostics.importance(DRAWS, target, posterior(), num_samples=20_000, widening=s)
        for s in (1.0, 2.0)
    )
    assert abs(wide.log_evidence) < 4 * wide.log_evidence_error
    assert ksivi.diagnostics.pareto_khat(plain.log_weights) > 0.5
    assert ksivi.diagnostics.pareto_khat(wide.log_weights) < 0.3
    with pytest.raises(ValueError, match="widening must be one positive number, got 0"):
        ksivi.diagnostics.importance(KEY, target, posterior(), widening=0)


def test_weights_are_cut_and_survive_what_is_not_finite():
    for xp in (np, jnp):
        weights = truncated_weights(xp.asarray([0.0, 10.0, xp.nan, -xp.inf] + [0.0] * 96))
        assert weights[2] == weights[3] == 0
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
        np.testing.assert_allclose(
            weights[1] / weights[0], 10 * np.mean([np.exp(10), *[1] * 97, 0, 0]), rtol=1e-3
        )
        assert not truncated_weights(xp.full(5, -xp.inf)).any()


def test_log_prob_estimates_the_exact_log_density():
    x = posterior().sample(KEY, 500)
    estimate = np.asarray(posterior().log_prob(jax.random.key(1), x, num_mixing=20_000))
    assert np.abs(estimate - EXACT.logpdf(np.asarray(x))).mean() < 0.03
    coarse = np.asarray(posterior().log_prob(jax.random.key(1), x, num_mixing=10))
    assert coarse.mean() < estimate.mean()
    scale = jnp.asarray(np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.0, 0.3, 0.5]]), float)
    affine = ksivi.targets.Affine(jnp.ones(3), scale)
    moved = posterior(affine).log_prob(jax.random.key(1), jax.vmap(affine)(x), num_mixing=20_000)
    np.testing.assert_allclose(moved, estimate - np.log(np.linalg.det(scale)), atol=1e-3)


def test_weights_where_the_target_is_zero():
    half = ksivi.Target(
        lambda x: jnp.where(x[0] > 0, -0.5 * jnp.sum(x**2), -jnp.inf), dim=3, test_point=jnp.ones(3)
    )
    result = ksivi.diagnostics.importance(KEY, half, posterior(), num_samples=20_000)
    assert result.elbo == -np.inf
    exact = np.log(0.5 * (2 * np.pi) ** 1.5)
    assert abs(result.log_evidence - exact) < 4 * result.log_evidence_error
    nowhere = ksivi.Target(
        lambda x: jnp.where(x[0] > 99, 0.0, -jnp.inf), dim=3, test_point=jnp.full(3, 100.0)
    )
    with pytest.raises(ValueError, match="target must not be zero at every draw"):
        ksivi.diagnostics.importance(KEY, nowhere, posterior())


def test_one_program_without_the_target_serves_all_targets(caplog):
    """The draws and their log q are compiled once, whatever the target is."""
    shifted = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 1) ** 2), dim=3)
    ksivi.diagnostics.importance(KEY, normal_target(), posterior(), num_mixing=7)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        ksivi.diagnostics.importance(KEY, shifted, posterior(), num_mixing=7)
    assert "_evaluate" in caplog.text
    assert "_from_family" not in caplog.text


def test_a_wider_family_has_a_wider_mixing():
    family = posterior().family.widened(1.5)
    assert isinstance(family.mixing, WideMixing)
    assert family.dim == 3
    with pytest.raises(ValueError, match="scale must be one positive number"):
        posterior().family.widened(-1.0)


@pytest.mark.slow
def test_small_conditional_scales_do_not_spoil_the_weights():
    """With σ a thousandth of the spread of the means, in 50 dimensions."""
    family = ksivi.SemiImplicit.mlp(KEY, dim=50, mixing_dim=1, hidden=(20,), log_var=-13.8)
    _, log_q = family.sample_and_log_prob(KEY, 200, 500)
    assert np.isfinite(log_q).all()
    with jax.enable_x64(True):
        double = jax.tree.map(lambda a: a.astype(jnp.float64), family)
        noise_key, mixing_key = jax.random.split(KEY)
        noise = tuple(a.astype(jnp.float64) for a in family.noise(noise_key, 200))
        others = family.mixing.sample(mixing_key, 500, jnp.float32).astype(jnp.float64)
        exact = double.transport_and_log_prob(noise, others)[1]
    np.testing.assert_allclose(log_q, exact, atol=0.02)
