import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
import truth
from ksivi import metrics

KEY = jax.random.key(0)


def normal(seed, n, d=2, shift=0.0):
    return shift + jax.random.normal(jax.random.key(seed), (n, d))


def test_kl_of_two_gaussians():
    """KL(N(m, I) ‖ N(0, I)) = ‖m‖²/2; the estimator's standard deviation here is near 0.01."""
    estimates = [
        metrics.kl_knn(normal(s, 5_000, shift=0.5), normal(100 + s, 5_000)) for s in range(5)
    ]
    np.testing.assert_allclose(np.mean(estimates), 0.25, atol=0.03)
    assert abs(metrics.kl_knn(normal(1, 5_000), normal(2, 5_000))) < 0.05


@pytest.mark.parametrize(("n", "m", "d"), [(300, 40, 1), (500, 70, 2), (400, 30, 12)])
def test_log_kde_is_scipys(monkeypatch, n, m, d):
    """Also far from the origin, far from all samples, and in several blocks of pairs."""
    from scipy.stats import gaussian_kde

    rng = np.random.default_rng(d)
    x = 50 + rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    y = 50 + 3 * rng.normal(size=(m, d))
    expected = gaussian_kde(x.T).logpdf(y.T)
    np.testing.assert_allclose(metrics.log_kde(x, y), expected, rtol=1e-9)
    monkeypatch.setattr("ksivi.metrics._density._PAIRS", 7 * 1_024)
    np.testing.assert_allclose(metrics.log_kde(x, y), expected, rtol=1e-9)


def test_log_kde_of_many_normal_draws():
    """Smoothing by H makes N(0, I) an N(0, (1 + h²) I), h² = n^(−2/(d+4))."""
    x, y = normal(0, 50_000, d=3), normal(1, 500, d=3)
    variance = 1 + 50_000 ** (-2 / 7)
    expected = np.mean(-0.5 * np.sum(np.asarray(y) ** 2, 1) / variance)
    expected -= 1.5 * np.log(2 * np.pi * variance)
    np.testing.assert_allclose(metrics.log_kde(x, y).mean(), expected, atol=0.01)


def test_ksd_equals_the_closed_form():
    """Repeated estimates against KSD²(N(m, I) ‖ N(0, I)) = ‖m‖² (1 + 4/h)^(−d/2) for the Gaussian kernel."""
    kernel, shift = ksivi.kernels.Gaussian(ksivi.kernels.Fixed(2.0)), 0.4
    estimates = np.array(
        [metrics.ksd(normal(s, 400, shift=shift), lambda x: -x, kernel=kernel) for s in range(30)]
    )
    expected = 2 * shift**2 * (1 + 4 / 2.0) ** -1
    assert abs(estimates.mean() - expected) < 4 * estimates.std() / np.sqrt(30)


def test_ksd_is_near_zero_for_exact_draws_and_not_for_others():
    target = ksivi.problems.banana().target
    exact = ksivi.problems.banana().reference(KEY, 2_000)
    assert abs(metrics.ksd(exact, target.score)) < 0.02
    assert metrics.ksd(exact + 0.5, target.score) > 0.5


def test_mmd_equals_the_double_loop():
    x, y = np.asarray(normal(0, 20), np.float64), np.asarray(normal(1, 25, shift=0.7), np.float64)
    pooled = np.concatenate([x, y])
    spreads = truth.spreads("gaussian", pooled, pooled)[~np.eye(45, dtype=bool)]
    h = np.sort(spreads)[(spreads.size - 1) // 2]
    means = [truth.gram("gaussian", a, b, h).mean() for a, b in ((x, x), (y, y), (x, y))]
    expected = np.sqrt(means[0] + means[1] - 2 * means[2])
    np.testing.assert_allclose(
        metrics.mmd(x.astype(np.float32), y.astype(np.float32)), expected, rtol=1e-4
    )


def test_sliced_wasserstein_of_a_shift():
    """A shift by v moves each projection by ⟨θ, v⟩: the mean of ⟨θ, v⟩² is ‖v‖²/d."""
    x = normal(0, 500, d=3)
    estimate = metrics.sliced_wasserstein(
        KEY, x, x + jnp.array([[3.0, 0.0, 0.0]]), num_projections=5_000
    )
    np.testing.assert_allclose(estimate, np.sqrt(9 / 3), rtol=0.03)
    assert metrics.sliced_wasserstein(KEY, x, x) < 1e-6


def test_wasserstein_of_a_shift():
    x = normal(0, 200)
    np.testing.assert_allclose(metrics.wasserstein(x, x + 1.0), np.sqrt(2), rtol=1e-5)
    np.testing.assert_allclose(metrics.wasserstein(x, x + 1.0, p=1), np.sqrt(2), rtol=1e-5)


def test_exact_wasserstein_is_refused_above_5000_points():
    with pytest.raises(ValueError, match="at most 5,000 points, got 5,001 and 10"):
        metrics.wasserstein(normal(0, 5_001), normal(1, 10))


def test_boxed_wasserstein_is_the_cost_of_the_best_matching_in_the_box():
    """Compared with an optimal assignment of the points in the box. The cost is squared."""
    from scipy.optimize import linear_sum_assignment

    x, y = (np.asarray(normal(seed, 60)) for seed in (0, 1))
    cost = np.sum((x[:, None] - y[None]) ** 2, axis=2)
    best = cost[linear_sum_assignment(cost)].mean()
    far = np.array([[0.0, 9.0], [-9.0, 0.0]], np.float32)
    outside = metrics.boxed_wasserstein(np.concatenate([far, x]), np.concatenate([y, far[:1]]), 5.0)
    np.testing.assert_allclose(outside, best, rtol=1e-5)
    assert metrics.boxed_wasserstein(np.concatenate([far, x]), y, 10.0) > 2 * best


def test_boxed_wasserstein_of_exact_student_t_draws():
    """The floor falls with the number of points, but not to 0."""
    draws = np.asarray(ksivi.problems.student_t().reference(KEY, 4_000))
    few, many = (
        np.mean(
            [
                metrics.boxed_wasserstein(draws[i : i + n], draws[3_000:], 5.0)
                for i in range(0, 1_500, 300)
            ]
        )
        for n in (30, 300)
    )
    assert 0.01 < many < few


def test_boxes_without_points_or_with_too_many_are_refused():
    with pytest.raises(
        ValueError, match=r"x and y must have points within ±0\.5, got 0 and 5 of them there"
    ):
        metrics.boxed_wasserstein(np.ones((5, 2)), np.zeros((5, 2)), 0.5)
    with pytest.raises(ValueError, match="at most 25,000,000 pairs in the box, got 5,001 × 5,000"):
        metrics.boxed_wasserstein(np.zeros((5_001, 2)), np.zeros((5_000, 2)), 0.5)
    with pytest.raises(ValueError, match="half_width must be one positive number"):
        metrics.boxed_wasserstein(np.zeros((5, 2)), np.zeros((5, 2)), -1.0)


def test_rmse_is_of_the_mean_prediction_and_nll_of_the_mixture():
    f, y, precision = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, 60.0]]), np.array([2.0, 3.0, 0.5]), 0.8
    np.testing.assert_allclose(metrics.rmse(f, y), np.sqrt((0 + 1 + 29.5**2) / 3))
    normal = lambda r: np.sqrt(precision / (2 * np.pi)) * np.exp(-0.5 * precision * r**2)  # noqa: E731
    expected = -np.mean(
        [np.log(np.mean([normal(f[s, n] - y[n]) for s in range(2)])) for n in range(3)]
    )
    np.testing.assert_allclose(metrics.nll(f, y, precision), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"y must be 3 finite numbers, .* got shape \(2,\)"):
        metrics.rmse(f, y[:2])
    with pytest.raises(ValueError, match="precision must be one positive number"):
        metrics.nll(f, y, 0.0)


def test_missing_extras_are_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ot", None)
    with pytest.raises(ImportError, match=r"ksivi\[metrics\]"):
        metrics.wasserstein(normal(0, 5), normal(1, 5))


def test_pairwise_metrics_hold_no_matrix_of_all_pairs():
    """With 100,000 samples a full matrix would need 40 GB. The compiled programs need a few tiles."""
    import equinox as eqx

    from ksivi.metrics import _stein as stein

    x, kernel = jnp.zeros((100_000, 2)), ksivi.kernels.IMQ(ksivi.kernels.Fixed(1.0))
    for function, arguments in (
        (stein._ksd2, (x, lambda x: -x, kernel)),
        (stein._mean_kernel, (kernel, x, x)),
    ):
        compiled = eqx.filter_jit(function.__wrapped__).lower(*arguments).compile().compiled
        assert compiled.memory_analysis().temp_size_in_bytes < 2**29
