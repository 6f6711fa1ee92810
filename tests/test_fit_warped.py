"""Warped Gaussians that are fitted to draws: their margins and their correlations."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from ksivi._core.roots import DenseRoot, LowRankRoot
from ksivi._core.warped import gaussian
from ksivi.auto._warp import fit_warped
from warps import covariance, low_rank, warped


def assert_same_marginals(found, exact, n):
    """The quantiles of each coordinate have their levels, within 5 standard errors of n draws."""
    levels = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])[:, None]
    warps = np.sinh((np.arcsinh(ndtri(levels)) + found.skew) / found.tail)
    true = ndtr(exact.normal(found.loc + found.scale * warps))
    assert np.all(np.abs(true - levels) < 5 * np.sqrt(levels * (1 - levels) / n))


def without_vectors(scales):
    return LowRankRoot(scales, np.zeros((len(scales), 0)), np.zeros(0))


def loss(found, exact):
    """KL(exact, found) in nats, by draws, and its standard error."""
    x, _ = exact.draws(np.random.default_rng(10), 4_000)
    terms = exact.log_density(x) - found.log_density(x)
    return terms.mean(), terms.std() / len(x) ** 0.5


def test_a_warp_with_all_correlations_is_fitted_to_draws():
    """The root that is given has no correlations."""
    dim = 20
    exact = warped(low_rank(dim)._replace(factors=np.array([4.0, 6.0])))
    draws, _ = exact.draws(np.random.default_rng(8), 4_000)
    found = fit_warped(draws, without_vectors(draws.std(axis=0)), is_dense=True)
    assert isinstance(found.root, DenseRoot)
    np.testing.assert_allclose(found.root.lengths(), 1, rtol=1e-9)
    assert_same_marginals(found, exact, 4_000)
    assert np.max(np.abs(covariance(found.root) - covariance(exact.root))) < 0.1
    assert loss(found, exact)[0] < 0.3
    assert loss(found._replace(root=without_vectors(np.ones(dim))), exact)[0] > 3


def test_a_missing_direction_is_added_to_a_root_of_low_rank():
    """In many dimensions, where one direction hardly changes the widths of coordinates."""
    both = low_rank(200)._replace(factors=np.array([3.0, 4.0]))
    exact = warped(both)
    draws, _ = exact.draws(np.random.default_rng(8), 4_000)
    first = LowRankRoot(both.scales, both.vectors[:, :1], both.factors[:1])
    found = fit_warped(draws, first)
    assert isinstance(found.root, LowRankRoot)
    *others, one, other = np.sort(found.root.factors)
    np.testing.assert_allclose([one, other], [3, 4], rtol=0.15)
    np.testing.assert_allclose(others, 1, atol=0.15)
    assert_same_marginals(found, exact, 4_000)
    known = loss(found._replace(root=exact.root), exact)[0]  # what the margins alone cost
    missing = loss(found._replace(root=first.scaled(1 / first.lengths())), exact)[0]
    assert missing > known + 3
    assert loss(found, exact)[0] < known + 1


def test_a_wide_direction_that_a_root_has_too_narrow_is_widened():
    """Few chains in many dimensions: after whitening, noise is as wide as what is missing."""
    dim, num_chains = 1_500, 128
    exact = LowRankRoot(np.ones(dim), np.full((dim, 1), dim**-0.5), np.array([4.0]))
    narrow = exact._replace(factors=np.array([2.2]))
    draws = np.random.default_rng(8).standard_normal((4 * num_chains, dim))
    found = fit_warped(exact.times(draws), narrow, num_chains=num_chains).root
    assert np.max(found.factors) == pytest.approx(4, rel=0.15)
    assert np.sum(np.abs(np.log(found.factors)) > 0.3) == 1


def test_few_draws_add_no_directions_and_no_full_matrix():
    plain = gaussian(np.zeros(200), without_vectors(np.ones(200)))
    draws, _ = plain.draws(np.random.default_rng(8), 300)
    found = fit_warped(draws, without_vectors(np.ones(200)), is_dense=True)
    assert isinstance(found.root, LowRankRoot)
    assert found.root.factors.shape == (0,)


def slow_chains(num_states, num_chains, dim, correlation=0.8):
    """States of N(0, I) that remember the states before: one of every chain, then the next, …"""
    rng = np.random.default_rng(9)
    states = [rng.standard_normal((num_chains, dim))]
    for _ in range(num_states - 1):
        noise = (1 - correlation**2) ** 0.5 * rng.standard_normal((num_chains, dim))
        states.append(correlation * states[-1] + noise)
    return np.concatenate(states)


def test_states_of_slow_chains_add_hardly_a_direction():
    draws, none = slow_chains(16, 64, 200), without_vectors(np.ones(200))
    assert fit_warped(draws, none).root.factors.shape[0] > 2  # or the test shows nothing
    assert fit_warped(draws, none, num_chains=64).root.factors.shape[0] <= 1


def test_a_full_matrix_is_shrunk_by_the_noise_of_chains():
    """As much as by that of independent draws which are as many as the states count for."""
    none = without_vectors(np.ones(100))
    exact = gaussian(np.zeros(100), none)
    draws, count = slow_chains(16, 64, 100), 64 * 16 * (1 - 0.8**2) / (1 + 0.8**2)
    found = fit_warped(draws, none, is_dense=True, num_chains=64)
    fewer = exact.draws(np.random.default_rng(8), round(count))[0]
    expected = loss(fit_warped(fewer, none, is_dense=True), exact)[0]
    assert loss(found, exact)[0] < 1.5 * expected
    assert loss(fit_warped(draws, none, is_dense=True), exact)[0] > 3 * expected


def test_independent_states_of_chains_count_as_draws():
    draws, none = slow_chains(16, 64, 100, correlation=0.0), without_vectors(np.ones(100))
    found = fit_warped(draws, none, is_dense=True, num_chains=64)
    expected = fit_warped(draws, none, is_dense=True)
    np.testing.assert_allclose(found.root.matrix, expected.root.matrix, atol=0.01)
