"""`fit` on targets that have a score and no log density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import ksivi
from ksivi.auto import _fit
from ksivi.targets import LineDensity

KEY = jax.random.key(0)
NUM = 4_000


def fit_of(score, dim, **options):
    target = ksivi.Target.from_score(score, dim=dim)
    return ksivi.fit(KEY, target, progress=False, **options)


def draws_of(fit):
    return np.asarray(fit.posterior.sample(jax.random.key(1), NUM), np.float64)


def test_integrals_along_lines_are_exact_for_polynomials(x64):
    log_density = lambda x: -jnp.sum(x**4) / 4 + x[0] * x[1] ** 2  # noqa: E731
    whole = ksivi.Target(log_density, 2)
    start, x = jnp.array([0.3, -2.0]), jnp.array([1.5, 0.7])
    lines = LineDensity(ksivi.Target.from_score(whole.score, 2).density, start, 2)
    value, score = lines.value_and_score(x)
    np.testing.assert_allclose(value, log_density(x) - log_density(start), rtol=1e-12)
    np.testing.assert_allclose(lines.value(x), value, rtol=1e-12)
    np.testing.assert_allclose(score, jax.grad(log_density)(x), rtol=1e-12)


def test_a_gaussian_far_away_with_unequal_scales():
    """The constant is not known, so there is no evidence; nor does the target have densities."""
    mean, sds = np.array([3_000.0, -50.0]), np.array([100.0, 0.01])
    fit = fit_of(lambda x: -(x - mean) / sds**2, 2)
    assert fit.trusted, fit.status
    u = (draws_of(fit) - mean) / sds
    assert np.abs(u.mean(axis=0)).max() < 0.1
    assert np.abs(np.log(u.std(axis=0))).max() < 0.06
    found = fit.diagnostics
    assert np.isnan([found.elbo, found.log_evidence]).all()
    assert found.lines_error < 0.03
    assert "integrals of the score" in str(fit.status)
    assert "ELBO" not in str(fit)
    assert "line integrals" in str(fit)
    assert not fit.posterior.target.has_log_density


def test_separate_modes_have_their_shares():
    """Chains along the score alone would leave the shares as they started."""

    def log_density(x):
        log_normal = lambda mean: -0.5 * jnp.sum((x - mean) ** 2)  # noqa: E731
        return jnp.logaddexp(jnp.log(0.3) + log_normal(-4.0), jnp.log(0.7) + log_normal(4.0))

    fit = fit_of(jax.grad(log_density), 2)
    assert fit.trusted, fit.status
    share = np.mean(draws_of(fit)[:, 0] < 0)
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / NUM) ** 0.5 + 0.02


def test_lines_start_anew_where_the_score_varies_quickly():
    """From the origin, 16 nodes miss the kink at 7. From the mean of these draws, 64 see it."""
    fit = fit_of(lambda x: -5 * jnp.tanh(20 * (x - 7)), 1)
    assert fit.trusted, fit.status
    density = lambda x: np.cosh(20 * x) ** -0.25  # noqa: E731
    scale = 2 * quad(density, 0, 10)[0]
    sd = (2 * quad(lambda x: x**2 * density(x), 0, 10)[0] / scale) ** 0.5
    draws = draws_of(fit)[:, 0]
    assert abs(draws.mean() - 7) < 5 * sd / NUM**0.5 + 0.05 * sd
    assert abs(np.log(draws.std() / sd)) < 0.08
    assert fit.cost.score_evals > 65 * 10_000


def test_a_field_that_is_no_gradient_is_doubted():
    fit = fit_of(lambda x: -x + jnp.array([-x[1], x[0]]), 2)
    assert not fit.trusted
    assert fit.diagnostics.lines_error > 0.1
    assert "the score is not a gradient, or it varies too quickly" in str(fit.status)


def test_the_cost_is_that_of_all_fits(monkeypatch):
    costs = []

    def counted(*about):
        fit = as_it_is(*about)
        costs.append(fit.cost.score_evals)
        return fit

    as_it_is = _fit._fit_as_it_is
    monkeypatch.setattr(_fit, "_fit_as_it_is", counted)
    fit = fit_of(lambda x: -x + jnp.array([-x[1], x[0]]), 2)
    assert len(costs) > 1
    each = (17, 65, 257)  # the nodes of a line and its end
    assert fit.cost.score_evals == sum(a * b for a, b in zip(each, costs, strict=False))


def test_snapshots_of_several_trainings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="checkpoint must be None for a target that has only a"):
        fit_of(lambda x: -x, 2, checkpoint=tmp_path)


def test_an_earlier_fit_takes_the_place_of_the_search():
    first = fit_of(lambda x: -x, 2)
    again = fit_of(lambda x: -(x - 0.5) / 0.8**2, 2, init=first)
    assert again.trusted, again.status
    assert np.abs(draws_of(again).mean(axis=0) - 0.5).max() < 0.08


@pytest.mark.slow
def test_many_dimensions():
    dim = 200
    sds = jnp.linspace(0.5, 2, dim)
    fit = fit_of(lambda x: -x / sds**2, dim)
    assert fit.trusted, fit.status
    assert np.abs(np.log(draws_of(fit).std(axis=0) / np.asarray(sds))).max() < 0.15


def test_a_budget_that_ends_before_the_second_fit_keeps_the_first(monkeypatch):
    fits = []

    def fit_once(rng, target, plan, began):
        if fits:
            raise RuntimeError("budget_s ended")
        fits.append(as_it_is(rng, target, plan, began))
        return fits[0]

    as_it_is = _fit._fit_as_it_is
    monkeypatch.setattr(_fit, "_fit_as_it_is", fit_once)
    fit = fit_of(lambda x: -x + jnp.array([-x[1], x[0]]), 2)
    assert not fit.trusted
    assert "different lines differ" in str(fit.status)
