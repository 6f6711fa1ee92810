"""Chains and particles that `fit` runs on the host: transitions, annealing, the scan for modes."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import stats

import ksivi
from known import gaussian
from ksivi._core.hmc import Place, hmc_transition, where_finite
from ksivi._core.mixtures import Mixture, root_of
from ksivi.auto._anneal import anneal, begin
from ksivi.auto._gaussians import Gaussians, batch_and_match
from ksivi.auto._scan import with_far_modes
from ksivi.auto._search import Found, first_starts, search
from ksivi.targets import Evaluator

SHARE = 0.3


def two_by_two():
    roots = np.array([[[1.0, 0.0], [0.5, 2.0]], [[0.3, 0.0], [-1.0, 0.7]]])
    return Mixture(np.array([0.8, 0.2]), np.array([[0.0, 1.0], [3.0, -2.0]]), roots)


def test_a_mixture_has_the_density_the_score_and_the_covariances_of_its_gaussians():
    mixture, rng = two_by_two(), np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    each = zip(mixture.means, mixture.roots, strict=True)
    parts = [stats.multivariate_normal(mean, root @ root.T).pdf(x) for mean, root in each]
    expected = mixture.shares @ np.stack(parts)
    log_density, score = mixture.log_density_and_score(x)
    np.testing.assert_allclose(log_density, np.log(expected))
    np.testing.assert_allclose(mixture.log_density(x), log_density)
    np.testing.assert_allclose(mixture.responsibilities(x)[:, 1], 0.2 * parts[1] / expected)
    for i, shift in enumerate(1e-5 * np.eye(2)):
        slope = (mixture.log_density(x + shift) - mixture.log_density(x - shift)) / 2e-5
        np.testing.assert_allclose(score[:, i], slope, rtol=1e-5, atol=1e-6)
    draws, origins = mixture.draws(rng, 40_000)
    for k, root in enumerate(mixture.roots):
        np.testing.assert_allclose(root_of(draws[origins == k]), root, atol=0.05)


def normal(x):
    return -0.5 * np.sum(x**2, axis=1), -x


def test_transitions_leave_a_normal_as_it_is_and_keep_what_belongs_to_a_place():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4_000, 3))
    at = lambda x: Place(x, *normal(x), extra=(x[:, 0], 2 * x))  # noqa: E731
    place = at(x)
    for _ in range(10):
        place, probability = hmc_transition(rng, at, place, 0.8)
        assert 0.6 < probability.mean() < 1
    assert np.abs(np.mean(place.x * x)) < 4 / np.sqrt(x.size)
    assert np.abs(place.x.mean(axis=0)).max() < 4 / np.sqrt(len(x))
    assert np.abs(place.x.var(axis=0) - 1).max() < 4 * np.sqrt(2 / len(x))
    jax.tree.map(np.testing.assert_array_equal, place, at(place.x))


def test_step_sizes_and_powers_of_the_density_belong_to_one_chain_each():
    rng, beta = np.random.default_rng(0), np.repeat([0.04, 1.0], 3_000)
    at = lambda x: Place(x, *normal(x)).times(beta)  # noqa: E731
    place = at(rng.standard_normal((6_000, 1)) / np.sqrt(beta)[:, None])
    for _ in range(5):
        place, probability = hmc_transition(rng, at, place, 0.8 / np.sqrt(beta))
    hot, cold = np.split(place.x[:, 0], 2)
    np.testing.assert_allclose([hot.std(), cold.std()], [5, 1], rtol=4 / np.sqrt(6_000))
    assert abs(np.diff([part.mean() for part in np.split(probability, 2)])[0]) < 0.02


@pytest.mark.parametrize("beyond", [-np.inf, np.inf, np.nan])
def test_chains_stay_where_the_density_is_finite_without_a_warning(beyond):
    """A half normal. Beyond 0, neither values nor scores are of any use."""
    asked = []

    def half_normal(x):
        asked.append(x)
        is_inside = x[:, 0] > 0
        return np.where(is_inside, -0.5 * x[:, 0] ** 2, beyond), np.where(
            is_inside[:, None], -x, beyond
        )

    rng = np.random.default_rng(0)
    at = lambda x: Place(x, *where_finite(half_normal, x))  # noqa: E731
    place = at(np.abs(rng.standard_normal((4_000, 1))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):
            place, probability = hmc_transition(rng, at, place, 0.5)
    assert np.isfinite(probability).all()
    assert place.x.min() > 0
    mean, sd = stats.halfnorm.stats()[0], stats.halfnorm.std()
    assert abs(place.x.mean() - mean) < 4 * sd / np.sqrt(4_000)
    assert np.isfinite(np.concatenate(asked)).all()
    assert sum(map(len, asked)) < 0.95 * 4_000 * 81


def log_density(x):
    """0.7 of a Gaussian at the origin, and 0.3 of a strongly bent banana at (12, 0)."""
    u, v = x[0] - 12, x[1]
    banana = norm.logpdf(u) + norm.logpdf(v - 1.5 * (u**2 - 1))
    return jnp.logaddexp(jnp.log(1 - SHARE) + jnp.sum(norm.logpdf(x)), jnp.log(SHARE) + banana)


def at_the_modes(shares):
    """One Gaussian for each mode. That of the banana has 2% of the mass by its ELBO, and not 30%."""
    roots = np.stack([np.eye(2), np.diag([0.4, 1.0])])
    return Mixture(np.asarray(shares), np.array([[0.0, 0.0], [12.0, -1.5]]), roots)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.8, 0.2)])
def test_annealed_particles_have_the_shares_of_modes_that_are_no_gaussians(shares):
    rng, evaluate = np.random.default_rng(1), Evaluator(ksivi.Target(log_density, dim=2))
    mixture = at_the_modes(shares)
    first = begin(rng, evaluate, mixture, 3_000)
    np.testing.assert_array_equal(np.bincount(first.origins), 3_000 * np.asarray(shares))
    expected = evaluate.log_density(first.x) - mixture.log_density(first.x)
    np.testing.assert_allclose(first.log_ratio, expected, atol=1e-4)
    found = anneal(rng, evaluate, mixture, first)
    assert abs(found.log_evidence) < 0.15
    at_banana = found.draws[:, 0] > 6
    assert abs(at_banana.mean() - SHARE) < 0.05
    np.testing.assert_array_equal(at_banana, found.origins == 1)
    # Its own coordinate is normal, with the bend in the other one.
    u = found.draws[at_banana, 0] - 12
    assert abs(u.mean()) < 0.2
    assert abs(u.std() - 1) < 0.15


def test_annealing_from_the_target_itself_takes_one_stage():
    mixture, rng, count = two_by_two(), np.random.default_rng(0), 0

    def evaluate(x):
        nonlocal count
        count += len(x)
        return mixture.log_density_and_score(x)

    found = anneal(rng, evaluate, mixture, begin(rng, evaluate, mixture, 1_000))
    np.testing.assert_allclose(found.log_evidence, 0, atol=1e-12)
    assert count == 1_000 * (1 + 8 * 10)  # the first particles, and ten transitions
    exact, _ = mixture.draws(rng, 100_000)
    error = 4 * exact.std(axis=0) / np.sqrt(1_000)
    assert np.all(np.abs(found.draws.mean(axis=0) - exact.mean(axis=0)) < error)


def test_particles_where_the_density_is_zero_cannot_be_annealed():
    rng = np.random.default_rng(0)
    nowhere = lambda x: (np.full(len(x), -np.inf), np.full(x.shape, np.nan))  # noqa: E731
    first = begin(rng, nowhere, two_by_two(), 100)
    assert np.all(first.log_ratio == -np.inf)
    assert anneal(rng, nowhere, two_by_two(), first) is None


def narrow_and_far(spike=None):
    """N(0, I) with weight 0.6, and a Gaussian a quarter as wide seven standard deviations away."""
    mean, sd = jnp.array([4.0, -4.0, 4.0]), 0.25

    def log_density(x):
        wide = jnp.log(0.6) - 0.5 * jnp.sum(x**2)
        narrow = jnp.log(0.4) - 0.5 * jnp.sum((x - mean) ** 2) / sd**2 - 3 * jnp.log(sd)
        value = jnp.logaddexp(wide, narrow) - 1.5 * jnp.log(2 * jnp.pi)
        return value if spike is None else value + spike(x)

    return ksivi.Target(log_density, 3)


def known_of(evaluate):
    found = search(evaluate, first_starts(np.random.default_rng(0), 12, 3))
    return found, batch_and_match(
        np.random.default_rng(1), evaluate, found.points, np.full(12, 0.1)
    )


def test_a_scan_finds_the_narrow_mode_that_no_path_led_to():
    evaluate = Evaluator(narrow_and_far())
    found, gaussians = known_of(evaluate)
    assert np.max(np.abs(found.points)) < 1  # or there is nothing to find
    extended, ends = with_far_modes(np.random.default_rng(2), evaluate, found, gaussians)
    assert len(extended.elbos) == 13
    np.testing.assert_allclose(ends[0], [4, -4, 4], atol=0.02)
    np.testing.assert_allclose(extended.means[-1], [4, -4, 4], atol=0.02)
    np.testing.assert_allclose(extended.elbos[-1], np.log(0.4), atol=0.02)


def test_a_scan_adds_nothing_to_a_single_mode():
    evaluate = Evaluator(gaussian())
    found, gaussians = known_of(evaluate)
    extended, ends = with_far_modes(np.random.default_rng(2), evaluate, found, gaussians)
    assert len(extended.elbos) == len(gaussians.elbos)
    assert len(ends) == 0


def test_peaks_of_rounding_are_no_modes():
    """Where a density is the difference of huge numbers, it is anything in single precision."""

    def spike(x):
        far = jnp.sum((x - jnp.array([4.0, -4.0, 4.0])) ** 2) < 4
        noise = jax.lax.stop_gradient(
            1e3 * (jnp.sin(1e4 * x[0]) + 1)
        )  # as rounding, which no derivative knows
        return jnp.where(far, noise, 0.0)

    evaluate = Evaluator(narrow_and_far(spike))
    found, gaussians = known_of(evaluate)
    extended, ends = with_far_modes(np.random.default_rng(2), evaluate, found, gaussians)
    assert len(extended.elbos) == len(gaussians.elbos)
    assert len(ends) == 0


def test_tempered_chains_reach_a_mode_that_no_path_reached():
    """Two modes in twelve dimensions, 15 standard deviations apart; all paths ended in one."""
    far = 15 * np.ones(12) / np.sqrt(12)

    def log_density(x):
        parts = jnp.stack([jnp.sum(norm.logpdf(x)), jnp.sum(norm.logpdf(x - far))])
        return jax.nn.logsumexp(parts) - jnp.log(2)

    evaluate = Evaluator(ksivi.Target(log_density, dim=12))
    known = Gaussians(np.zeros((12, 12)), np.tile(np.eye(12), (12, 1, 1)), np.zeros(12))
    found = Found(np.zeros((12, 12)), np.zeros(12), np.zeros((12, 12)))
    _, ends = with_far_modes(np.random.default_rng(0), evaluate, found, known)
    assert np.min(np.linalg.norm(ends - far, axis=1)) < 0.1
