"""Gaussians by secants and by batch, match and patch, for targets whose best Gaussian is known."""

import numpy as np
import pytest

from ksivi._core.roots import LowRankRoot
from ksivi._core.threads import few_threads
from ksivi.auto._patch import low_rank_gaussian
from ksivi.auto._secants import _diagonal_elbo, mean_field, secants

SEEDS = range(3)


@pytest.fixture(autouse=True)
def as_fit_does():
    """Thin matrices are slower on many threads."""
    with few_threads(1):
        yield


class Normal:
    """log p and its score for exp(c) N(mean, covariance), with the number of evaluations."""

    def __init__(self, mean, covariance, log_evidence=0.0):
        self.mean, self.precision = mean, np.linalg.inv(covariance)
        log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
        self.constant, self.count = log_evidence - 0.5 * log_det, 0

    def __call__(self, x):
        self.count += len(x)
        scores = -(x - self.mean) @ self.precision
        return self.constant + 0.5 * np.sum((x - self.mean) * scores, axis=1), scores


def ill_conditioned(dim=60, condition=1e4):
    """A covariance with eigenvalues from 1/√condition to √condition, in no coordinate's direction."""
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((dim, dim)))[0]
    return (axes * np.geomspace(condition**-0.5, condition**0.5, dim)) @ axes.T


def starts(dim, num=4, spread=2.0):
    return spread * np.random.default_rng(1).standard_normal((num, dim)), np.full(num, 0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_secants_find_an_ill_conditioned_gaussian(seed):
    covariance, mean = ill_conditioned(), np.random.default_rng(2).standard_normal(60)
    target = Normal(mean, covariance, log_evidence=3.0)
    found = secants(np.random.default_rng(seed), target, *starts(60))
    root = found.roots[0]
    # In the coordinates in which the target is N(0, I), so every direction counts.
    to_normal = np.linalg.inv(np.linalg.cholesky(covariance))
    np.testing.assert_allclose(to_normal @ (found.means[0] - mean), 0, atol=1e-3)
    relative = to_normal @ root @ root.T @ to_normal.T
    np.testing.assert_allclose(relative, np.eye(60), atol=1e-3)
    np.testing.assert_allclose(found.elbos[0], 3, atol=1e-3)
    np.testing.assert_array_equal(root, np.tril(root))
    assert np.diag(root).min() > 0
    assert target.count < 20_000


def walled(target, wall):
    """No mass beyond a wall: log p is −∞ there, and scores are NaN."""

    def evaluate(x):
        log_p, scores = target(x)
        beyond = x[:, 0] > wall
        return np.where(beyond, -np.inf, log_p), np.where(beyond[:, None], np.nan, scores)

    return evaluate


@pytest.mark.parametrize("bad", [0, 2])
def test_secants_leave_a_start_without_mass(bad):
    """Nothing is finite around one of the starts. The others find the Gaussian all the same."""
    covariance = ill_conditioned(60, 100)
    points, sds = starts(60)
    points[bad, 0] = 1e3
    evaluate = walled(Normal(np.zeros(60), covariance), 500)
    found = secants(np.random.default_rng(0), evaluate, points, sds)
    np.testing.assert_allclose(found.roots[0] @ found.roots[0].T, covariance, atol=1e-3 * 10)
    assert np.abs(found.means[0]).max() < 1e-2
    assert found.elbos[0] > -1e-2
    assert not np.isfinite(found.elbos[-1])


def test_secants_go_nearer_to_a_start_whose_surroundings_are_not_finite():
    """The first shell, of radius 2 √60, reaches beyond the wall. A narrower one does not."""
    evaluate = walled(Normal(np.zeros(60), 1e-2 * np.eye(60)), 1.0)
    found = secants(np.random.default_rng(0), evaluate, np.zeros((1, 60)), np.array([2.0]))
    np.testing.assert_allclose(found.roots[0], 0.1 * np.eye(60), atol=1e-3)


def test_secants_without_any_finite_value_have_no_elbo():
    nowhere = lambda x: (np.full(len(x), -np.inf), np.full(x.shape, np.nan))  # noqa: E731
    found = secants(np.random.default_rng(0), nowhere, *starts(10))
    assert not np.isfinite(found.elbos).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_diagonal_gaussian_has_scales_of_all_sizes(seed):
    dim = 300
    sds, mean = np.geomspace(0.01, 100, dim), np.random.default_rng(3).standard_normal(dim)
    target = Normal(mean, np.diag(sds**2))
    found_mean, found_sds, *_ = mean_field(np.random.default_rng(seed), target, *starts(dim))
    np.testing.assert_allclose(found_sds, sds, rtol=1e-3)
    assert np.max(np.abs(found_mean - mean) / sds) < 1e-3
    assert target.count < 10_000


@pytest.mark.parametrize("seed", SEEDS)
def test_the_diagonal_gaussian_of_a_correlated_one_has_its_precisions(seed):
    """The ELBO is largest at σⱼ = 1/√(Σ⁻¹)ⱼⱼ, which is less than the marginal width."""
    covariance = ill_conditioned(40, 10)
    target = Normal(np.zeros(40), covariance)
    mean, sds, *_ = mean_field(np.random.default_rng(seed), target, *starts(40))
    precisions = np.diag(target.precision)

    def divergence(mean, sds):
        """KL(N(mean, sds²), p), up to a constant."""
        quadratic = mean @ target.precision @ mean + precisions @ sds**2
        return 0.5 * quadratic - np.log(sds).sum()

    best, marginal = divergence(0 * mean, precisions**-0.5), np.sqrt(np.diag(covariance))
    assert divergence(0 * mean, marginal) > best + 2  # or the test shows nothing
    assert divergence(mean, sds) < best + 0.5


def test_the_diagonal_gaussian_leaves_a_start_without_mass():
    sds = np.geomspace(0.1, 10, 200)
    points, widths = starts(200)
    points[1, 0] = 1e3
    evaluate = walled(Normal(np.zeros(200), np.diag(sds**2)), 500)
    mean, found, *_ = mean_field(np.random.default_rng(0), evaluate, points, widths)
    np.testing.assert_allclose(found, sds, rtol=1e-3)
    assert np.max(np.abs(mean) / sds) < 1e-3


def two_modes(x):
    """N(0, I), with two modes of width 1 at ±10 along the first coordinate. The evidence is 1."""
    log_p, scores = Normal(np.zeros(x.shape[1]), np.eye(x.shape[1]))(x)
    log_p += np.logaddexp(10 * x[:, 0], -10 * x[:, 0]) - 50 - np.log(2)
    scores[:, 0] += 10 * np.tanh(10 * x[:, 0])
    return log_p, scores


@pytest.mark.parametrize("seed", SEEDS)
def test_the_elbo_of_a_diagonal_gaussian_is_that_of_draws(seed):
    """Half of the mass is in one mode. A Gaussian at 0 of width 10 has both modes at its corners."""
    points, widths = np.zeros((2, 50)), np.ones(50)
    points[0, 0] = 9.0
    found = mean_field(np.random.default_rng(seed), two_modes, points[:1], widths[:1])
    assert abs(found.elbo - np.log(0.5)) < 0.01 + 4 * found.error
    wide = widths.copy()
    wide[0] = 10.0
    x = np.random.default_rng(7).standard_normal((2_000, 50)) * wide
    terms = two_modes(x)[0] + np.sum(0.5 * (x / wide) ** 2 + np.log(wide) + 0.919, axis=1)
    elbo, error = _diagonal_elbo(np.random.default_rng(seed), two_modes, 0 * wide, wide)
    assert abs(elbo - terms.mean()) < 4 * np.hypot(error, terms.std() / 2_000**0.5)
    assert terms.mean() < np.log(0.5) - 10


@pytest.mark.parametrize("seed", SEEDS)
def test_a_diagonal_gaussian_across_two_modes_is_not_chosen(seed):
    points = np.zeros((2, 50))
    points[1, 0] = 9.0
    found = mean_field(np.random.default_rng(seed), two_modes, points, np.array([10.0, 1.0]))
    assert abs(found.mean[0] - 10) < 0.1
    np.testing.assert_allclose(found.sds, 1, rtol=0.05)


DIM = 400


def diagonal_plus_three():
    """Three directions are 5 to 20 times as wide as the scales, which differ by a factor of 100."""
    rng = np.random.default_rng(4)
    vectors = np.linalg.qr(rng.standard_normal((DIM, 3)))[0]
    return LowRankRoot(np.geomspace(0.1, 10, DIM), vectors, np.array([5.0, 10.0, 20.0]))


def exact_elbo(fit, target, covariance):
    """The ELBO of a Gaussian for a normal target, less its log evidence: −KL(q, p)."""
    root, apart = fit.root().dense().matrix, fit.mean - target.mean
    trace = np.sum((target.precision @ root) * root)
    log_dets = np.linalg.slogdet(covariance)[1] - 2 * fit.root().log_det()
    return -0.5 * (trace + apart @ target.precision @ apart - len(apart) + log_dets)


@pytest.mark.parametrize("seed", SEEDS)
def test_low_rank_plus_diagonal_is_found(seed):
    matrix = diagonal_plus_three().dense().matrix
    mean = matrix @ np.random.default_rng(5).standard_normal(DIM)
    target = Normal(mean, matrix @ matrix.T, log_evidence=7.0)
    rng = np.random.default_rng(seed)
    diagonal = mean_field(rng, target, *starts(DIM))[:2]
    found = low_rank_gaussian(rng, target, *diagonal)
    exact = exact_elbo(found.fit, target, matrix @ matrix.T)
    assert exact > -0.5
    assert abs(found.elbo - 7 - exact) < 5 * found.error
    best = Normal(mean, matrix @ matrix.T)
    sds = np.diag(best.precision) ** -0.5
    loss = 0.5 * np.linalg.slogdet(matrix @ matrix.T)[1] - np.log(sds).sum()
    assert loss > 3  # what the best diagonal Gaussian lacks, in nats


def test_low_rank_starts_nearer_where_log_p_is_not_finite():
    """The given widths reach beyond a wall at ten standard deviations."""
    target = Normal(np.zeros(DIM), np.eye(DIM))
    evaluate = walled(target, 10.0)
    wide = np.ones(DIM)
    wide[0] = 100.0
    found = low_rank_gaussian(np.random.default_rng(0), evaluate, np.zeros(DIM), wide)
    assert exact_elbo(found.fit, target, np.eye(DIM)) > -1


def test_low_rank_finds_nothing_where_nothing_is_finite():
    nowhere = lambda x: (np.full(len(x), -np.inf), np.full(x.shape, np.nan))  # noqa: E731
    rng = np.random.default_rng(0)
    assert low_rank_gaussian(rng, nowhere, np.zeros(200), np.ones(200)) is None
