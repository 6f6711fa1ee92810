"""Paths to modes, their distinct ends, and Gaussians by batch and match."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ksivi
from known import COVARIANCE, MEAN, gaussian, two_modes
from ksivi.auto import _gaussians
from ksivi.auto._gaussians import Gaussians, batch_and_match, log_gaussian, standardised
from ksivi.auto._paths import _Pairs
from ksivi.auto._search import distinct, first_starts, search
from ksivi.targets import Evaluator


class Plain:
    """An evaluator of NumPy functions, which rounds as the real one and counts its calls."""

    def __init__(self, log_density, score):
        self.functions, self.calls, self.count = (log_density, score), 0, 0

    def __call__(self, points):
        self.calls, self.count = self.calls + 1, self.count + len(points)
        x = points.astype(np.float32).astype(np.float64)
        values = (function(x) for function in self.functions)
        return tuple(value.astype(np.float32).astype(np.float64) for value in values)

    def log_density(self, points):
        return self(points)[0]


def normal(mean, covariance):
    precision = np.linalg.inv(covariance)
    score = lambda x: -(x - mean) @ precision  # noqa: E731
    return Plain(lambda x: 0.5 * np.sum((x - mean) * score(x), axis=1), score)


def correlated(scales):
    rng, dim = np.random.default_rng(0), len(scales)
    vectors = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    covariance = vectors * np.geomspace(0.05, 3, dim) @ vectors.T * scales * scales[:, None]
    return 2 * scales * rng.normal(size=dim), covariance


def student(dim, degrees=3.0):
    scale = lambda x: degrees + np.sum(x**2, axis=1)  # noqa: E731
    return Plain(
        lambda x: -0.5 * (degrees + dim) * np.log(scale(x) / degrees),
        lambda x: -(degrees + dim) * x / scale(x)[:, None],
    )


def banana():
    off = lambda x: x[:, 1] - 0.5 * x[:, 0] ** 2  # noqa: E731
    return Plain(
        lambda x: -0.5 * x[:, 0] ** 2 - 2 * off(x) ** 2,
        lambda x: np.stack([-x[:, 0] + 4 * off(x) * x[:, 0], -4 * off(x)], axis=1),
    )


def funnel():
    spread2 = lambda x: np.exp(-x[:, :1]) * np.sum(x[:, 1:] ** 2, axis=1, keepdims=True)  # noqa: E731
    return Plain(
        lambda x: -(x[:, 0] ** 2) / 18 - 2 * x[:, 0] - 0.5 * spread2(x)[:, 0],
        lambda x: np.concatenate(
            [-x[:, :1] / 9 - 2 + 0.5 * spread2(x), -np.exp(-x[:, :1]) * x[:, 1:]], axis=1
        ),
    )


def waves():
    """Modes of the same height at all whole numbers of both coordinates."""
    return Plain(
        lambda x: np.sum(10 * np.cos(2 * np.pi * x), axis=1),
        lambda x: -20 * np.pi * np.sin(2 * np.pi * x),
    )


def starts(dim, num=12):
    return first_starts(np.random.default_rng(0), num, dim)


def test_paths_get_off_steep_walls_and_reach_far_scales():
    """Scales from 0.01 to 100, 20 of them from the origin: exp overflows at many starts, where
    L-BFGS alone is lost."""
    scales = jnp.geomspace(0.01, 100.0, 6)
    centres = 20 * scales * jnp.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0])

    def log_density(x):
        y = (x - centres) / scales
        return jnp.sum(y - jnp.exp(y))

    found = search(Evaluator(ksivi.Target(log_density, 6)), starts(6))
    away = (found.points - np.asarray(centres)) / np.asarray(scales)
    assert np.mean(np.max(np.abs(away), axis=1) < 0.1) > 0.9


def test_paths_to_an_easy_mode_are_short_and_have_one_end():
    mean, covariance = correlated(np.ones(10))
    evaluate = normal(mean, covariance)
    found = search(evaluate, starts(10))
    assert evaluate.calls < 200
    assert evaluate.count < 3_000
    np.testing.assert_allclose(found.points, np.tile(mean, (12, 1)), atol=0.01)
    np.testing.assert_allclose(found.log_densities, 0, atol=1e-3)
    assert len(distinct(found.points, found.log_densities, evaluate)) == 1


def test_paths_reach_a_correlated_mode_whose_scales_differ():
    mean, covariance = correlated(np.geomspace(1e-2, 1e2, 10))
    assert np.min(search(normal(mean, covariance), starts(10)).log_densities) > -0.5


def test_paths_lead_to_both_modes_and_two_ends_are_distinct():
    evaluate = Evaluator(two_modes())
    found = search(evaluate, starts(2))
    kept = found.points[distinct(found.points, found.log_densities, evaluate)]
    np.testing.assert_allclose(kept, [[-4, 0], [4, 1]], atol=0.01)  # the higher mode first


def test_an_early_point_is_nearer_to_the_mass_than_the_mode_at_the_edge():
    """The mode of this funnel is at −18, six standard deviations from the mass."""
    found = search(funnel(), starts(5))
    assert np.all(found.points[:, 0] < -10)
    assert np.median(found.early[:, 0]) > np.median(found.points[:, 0]) + 1
    assert np.all(np.isfinite(found.early))


@pytest.mark.parametrize("bad", [-np.inf, np.nan, np.inf])
def test_paths_leave_points_where_the_density_is_not_finite(bad):
    near = lambda x: np.max(np.abs(x), axis=1) < 1  # noqa: E731
    evaluate = Plain(
        lambda x: np.where(near(x), -0.5 * np.sum((x - 0.5) ** 2, axis=1), bad),
        lambda x: np.where(near(x)[:, None], 0.5 - x, np.nan),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = search(evaluate, 3 * starts(4))
        nowhere = search(Plain(lambda x: x[:, 0] + bad, lambda x: x + bad), starts(4))
    np.testing.assert_allclose(found.points, 0.5, atol=0.01)
    assert np.all(nowhere.log_densities == -np.inf)
    assert len(distinct(nowhere.points, nowhere.log_densities, evaluate)) == 0


def test_equal_modes_of_a_regular_pattern_are_distinct():
    evaluate = waves()
    ends = np.array([[0.0, 0], [2, 0], [10, 4], [0.001, 0], [2, 0.001], [0, np.nan]])
    heights = np.append(evaluate.log_density(ends[:-1]), np.nan)
    np.testing.assert_array_equal(np.sort(distinct(ends, heights, evaluate)), [0, 1, 2])


def test_distinct_ends_do_not_depend_on_the_scales():
    scales = np.array([1e-6, 1e6])
    evaluate = normal(np.zeros(2), np.diag(scales**2))
    ends = scales * np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [0.0, 1.0]])
    kept = distinct(ends, evaluate.log_density(ends), evaluate)
    np.testing.assert_array_equal(kept, [0, 3])


def test_the_inverse_hessian_of_lbfgs_takes_the_newest_change_of_the_gradient_to_its_step():
    rng = np.random.default_rng(0)
    pairs = _Pairs(np.zeros((4, 10, 6)), np.zeros((4, 10, 6)), np.zeros((4, 10)))
    for _ in range(14):
        s = rng.normal(size=(4, 6))
        y = s * np.geomspace(0.1, 10, 6)
        pairs = pairs.pushed(s, y)
    np.testing.assert_allclose(-pairs.descent(y), s, rtol=1e-9)


def test_batch_and_match_meets_a_gaussian_from_afar():
    afar, sds = np.array([[0.0, 0.0, 0.0], [30.0, 30.0, -30.0]]), np.array([0.01, 10.0])
    found = batch_and_match(np.random.default_rng(0), Evaluator(gaussian()), afar, sds)
    for mean, root in zip(found.means, found.roots, strict=True):
        np.testing.assert_allclose(mean, MEAN, atol=0.02)
        np.testing.assert_allclose(root @ root.T, COVARIANCE, rtol=0.02, atol=1e-3)
    log_evidence = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    np.testing.assert_allclose(found.elbos, log_evidence, atol=0.01)


def test_batch_and_match_needs_few_updates_for_a_gaussian_of_any_scale():
    mean, covariance = correlated(np.geomspace(1e-3, 1e3, 10))
    evaluate = normal(mean, covariance)
    found = batch_and_match(
        np.random.default_rng(0), evaluate, np.tile(mean, (4, 1)), np.full(4, 0.1)
    )
    assert evaluate.calls < 30
    for one, root, _ in found.each():
        assert np.max(np.abs(one - mean) / np.sqrt(np.diag(covariance))) < 0.01
        ratio = np.linalg.solve(np.linalg.cholesky(covariance), root)
        np.testing.assert_allclose(ratio @ ratio.T, np.eye(10), atol=0.01)


@pytest.mark.parametrize(
    ("evaluate", "dim", "lowest"), [(student(10), 10, 4.8), (banana(), 2, 0.6)]
)
def test_batch_and_match_stops_early_and_loses_nothing_where_draws_differ(evaluate, dim, lowest):
    """After 100 updates whose λ decreases as 1/t, they are 4.9 to 5.0, and 0.7 to 0.9."""
    calls = evaluate.calls
    found = batch_and_match(np.random.default_rng(0), evaluate, starts(dim), np.full(12, 0.1))
    assert evaluate.calls - calls < 80
    assert evaluate.count < 12 * 60 * 32
    assert np.min(found.elbos) > lowest


def test_batch_and_match_stands_scores_that_are_not_finite():
    positive = lambda x: np.all(x > 0, axis=1)  # noqa: E731
    evaluate = Plain(
        lambda x: np.where(positive(x), 8 * np.sum(np.log(x) - x, axis=1), -np.inf),
        lambda x: np.where(positive(x)[:, None], 8 / x - 8, np.nan),
    )
    points = np.array([[1.0, 1.0], [-50.0, -50.0]])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        found = batch_and_match(np.random.default_rng(0), evaluate, points, np.full(2, 0.1))
    np.testing.assert_allclose(found.means[0], 1.0, atol=0.2)
    np.testing.assert_allclose(found.means[1], points[1])  # nothing there to learn from
    assert not np.isfinite(found.elbos[1])
    assert np.all(np.isfinite(found.roots))


def test_a_gaussian_whose_update_fails_keeps_its_values(monkeypatch):
    eigh = np.linalg.eigh

    def fails_for_large(matrices):
        if np.max(matrices) > 1e10:
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        return eigh(matrices)

    monkeypatch.setattr(_gaussians.np.linalg, "eigh", fails_for_large)
    points = np.array([[0.0, 0.0], [1e8, 1e8]])
    evaluate = normal(np.zeros(2), np.eye(2))
    found = batch_and_match(np.random.default_rng(0), evaluate, points, np.full(2, 0.1))
    np.testing.assert_allclose(found.roots[0], np.eye(2), atol=0.01)
    np.testing.assert_array_equal(found.means[1], points[1])
    np.testing.assert_array_equal(found.roots[1], 0.1 * np.eye(2))
    assert found.elbos[1] < -1e10


def test_usable_gaussians_are_finite_and_not_far_below_the_best():
    roots = np.tile(np.eye(2), (5, 1, 1))
    roots[3, 0, 0] = np.nan
    found = Gaussians(np.zeros((5, 2)), roots, np.array([0.0, -7.9, -8.1, 5.0, np.nan]))
    usable = found.usable()
    np.testing.assert_array_equal(usable.elbos, [0.0, -7.9])
    mixture = usable.mixture()
    np.testing.assert_array_equal(mixture.shares, [0.5, 0.5])
    expected = stats.multivariate_normal(np.zeros(2)).logpdf([1.0, 2.0])
    np.testing.assert_allclose(mixture.log_density(np.array([[1.0, 2.0]])), expected)
    assert len(Gaussians(*(part[4:] for part in found)).usable().elbos) == 0


def test_the_log_density_of_a_gaussian():
    x, root = np.random.default_rng(0).normal(size=(5, 3)), np.linalg.cholesky(COVARIANCE)
    expected = stats.multivariate_normal(MEAN, COVARIANCE).logpdf(x)
    np.testing.assert_allclose(log_gaussian(MEAN, root, x), expected)
    assert np.isclose(standardised(MEAN, root, x)[1], 0.5 * np.linalg.slogdet(COVARIANCE)[1])
