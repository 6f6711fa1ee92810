"""The truths of `benchmarks.big` that are quadrature: stochastic volatility, and groups of a negative binomial."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import big_groups, big_volatility
from benchmarks.big_grid import draw_index, lagrange, shifted
from benchmarks.big_problems import all_rows, problem

import ksivi


def _stein(target, draws, first=0):
    """The worst of E s = 0 and E (x − E x) s = −1 of the coordinates from `first` on, in standard errors."""
    x = np.asarray(draws, float)
    with jax.numpy_rank_promotion("allow"):
        score = np.asarray(jax.vmap(all_rows(target).score)(jnp.asarray(x, jnp.float32)), float)
    both = np.concatenate([score, (x - x.mean(axis=0)) * score + 1], axis=1)
    both = both.reshape(len(x), 2, -1)[..., first:]
    return np.abs(both.mean(axis=0) / (both.std(axis=0) / np.sqrt(len(x)))).max()


def _same(exact, chains):
    """Means within four standard errors, and widths: at least 400 draws of chains are effective."""
    error = exact.std(axis=0) * np.sqrt(1 / len(exact) + 1 / 400)
    assert np.all(np.abs(exact.mean(axis=0) - chains.mean(axis=0)) < 4 * error)
    np.testing.assert_allclose(exact.std(axis=0), chains.std(axis=0), rtol=0.15)


def test_values_between_nodes_are_those_of_a_polynomial_of_degree_five():
    nodes, s = np.arange(9.0), np.array([0.0, 0.3, 0.9])
    f = lambda x: (x / 4) ** 5 - x**2  # noqa: E731
    np.testing.assert_allclose(lagrange(s).sum(axis=-1), 1)
    found = shifted(np.tile(f(nodes), (3, 1)), s)
    np.testing.assert_allclose(found, f(nodes[2:-3] + s[:, None]), rtol=1e-9, atol=1e-9)


def test_a_node_with_a_random_offset_is_a_draw_of_the_density():
    """x = log g of a gamma variable g has the log density a x − eˣ; the nodes are 0.6 widths apart."""
    rng, a, nodes = np.random.default_rng(0), 5.0, np.arange(-5, 4, 0.28)
    moved = nodes + 0.28 * rng.uniform(size=(5_000, 1))
    index = draw_index(rng, a * moved - np.exp(moved))
    draws = np.take_along_axis(moved, index[:, None], axis=1)[:, 0]
    assert stats.kstest(np.exp(draws), "gamma", args=(a,)).pvalue > 0.01


def test_the_marginal_of_volatility_is_the_integral_of_its_target():
    one = problem("volatility-2")
    (y,) = one.truth.args
    line = np.linspace(-8, 8, 161)
    z = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    hyper = np.array([[-1, 3.5, -1.5], [0.5, 1.0, -0.3], [-2, 5.0, -3.0], [-1, 2.0, 0.4]])
    values = jax.vmap(one.target.log_density)
    points = [np.concatenate([np.tile(x, (len(z), 1)), z], axis=1) for x in hyper]
    brute = [logsumexp(np.asarray(values(jnp.asarray(p, jnp.float32)), float)) for p in points]
    gap = big_volatility.log_marginal(hyper, np.asarray(y, float)) - brute
    np.testing.assert_allclose(gap, gap[0], atol=1e-4)


def test_half_the_spacing_of_the_nodes_changes_nothing():
    y = np.random.default_rng(0).normal(0, 0.6, size=200)
    hyper = np.array([[-1, 3.5, -1.5], [-0.5, 5.0, -1.8], [-1.5, 2.0, -0.3]])
    found = [big_volatility.Chain(hyper, s).filtered(y)[0] for s in (0.25, 0.5, 0.75)]
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-5)


def test_paths_of_volatility_have_the_score_of_the_target():
    one, rng = problem("volatility-30"), np.random.default_rng(0)
    y = np.asarray(one.truth.args[0], float)
    hyper = np.tile([-1.0, 3.0, -0.5], (2_000, 1))
    chain = big_volatility.Chain(hyper[:1])
    few = chain.filtered(y, keep=True)[1]
    many = big_volatility.Chain(hyper)
    noise = many.noise_of(many.draw_path(rng, y, np.broadcast_to(few, (30, 2_000, few.shape[2]))))
    assert _stein(one.target, np.concatenate([hyper, noise], axis=1), first=3) < 4.2  # of 60


@pytest.mark.slow
def test_the_truth_of_volatility_is_that_of_nuts(monkeypatch):
    monkeypatch.setattr(big_volatility, "_LARGEST", 6.0)  # for speed; a hundredth of the prior
    one = problem("volatility-30")
    exact = big_volatility.volatility(*one.truth.args, n=4_000)
    assert _stein(one.target, exact, first=3) < 4.2  # of 60
    # Not `reference_draws`: single transitions diverge where σ is nearly 0.
    method = ksivi.NUTS(num_draws=1_500, target_acceptance=0.98)
    _same(
        exact, np.asarray(ksivi.run(jax.random.key(0), one.target, method).posterior.family.points)
    )


def _brute_groups(hyper, x, group, y):
    """log p(hyper | y) by a dense grid for each group, with the negative binomial of SciPy."""
    mean_a, log_a, mean_b, log_b, log_shape = hyper
    tau_a, tau_b, shape = np.exp(log_a), np.exp(log_b), np.exp(log_shape)
    a, b = np.meshgrid(
        mean_a + tau_a * np.linspace(-6, 6, 121), mean_b + tau_b * np.linspace(-6, 6, 121)
    )
    total = stats.norm.logpdf([mean_a, mean_b, log_shape - 1]).sum()
    total += stats.norm.logpdf([tau_a, tau_b]).sum() + log_a + log_b
    for g in np.unique(group):
        log_f = stats.norm.logpdf(a, mean_a, tau_a) + stats.norm.logpdf(b, mean_b, tau_b)
        for xi, yi in zip(x[group == g], y[group == g], strict=True):
            rate = np.exp(a + b * xi)
            log_f += stats.nbinom.logpmf(yi, shape, shape / (shape + rate))
        total += logsumexp(log_f) + np.log(tau_a * tau_b)
    return total


def test_the_marginal_of_groups_is_their_integral():
    x, group, y, groups = problem("negative-binomial-centred-300x10").truth.args
    x, y = np.asarray(x, float), np.asarray(y, float)
    rows = big_groups.Rows(x, group, y, groups)
    table = big_groups.Table(
        rows, big_groups.peak(rows.laplace, big_groups._START, big_groups._STEPS)
    )
    away = np.array([[0, 0, 0, 0, 0], [1, 0.5, -1, 0.5, 1], [-1, 1, 0, -0.5, -2]])
    hyper = table.at.mode + away * table.steps
    gap = table.log_marginal(hyper) - [_brute_groups(h, x, group, y) for h in hyper]
    np.testing.assert_allclose(gap, gap[0], atol=1e-4)


def test_the_truth_of_groups_has_the_score_of_the_target(capsys):
    one = problem("negative-binomial-centred-4000x100")
    draws = big_groups.negative_binomial(*one.truth.args, n=1_000)
    assert "ESS share 0.9" in capsys.readouterr().out
    assert _stein(one.target, draws) < 4.5  # of 410


def test_groups_that_leave_their_nodes_are_no_truth():
    with pytest.raises(RuntimeError, match="at an end"):
        big_groups._check(np.full((1, 1, 33), 1.0))
    spike = np.zeros((1, 1, 33))
    spike[..., 16] = 1
    with pytest.raises(RuntimeError, match="half of the nodes"):
        big_groups._check(spike)


@pytest.mark.slow
def test_the_truth_of_groups_is_that_of_nuts():
    one = problem("negative-binomial-centred-3000x80")
    exact = big_groups.negative_binomial(*one.truth.args, n=4_000)
    method = ksivi.NUTS(num_draws=1_000, target_acceptance=0.9)
    _same(exact, np.asarray(ksivi.reference_draws(jax.random.key(0), one.target, method=method)))
