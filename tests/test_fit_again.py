"""Fits of conjugate models: from an earlier fit with less data, and several at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import ksivi
from known import KEY, ROUGH, assert_equal_moments, family_of, gaussian, posterior_of
from ksivi.auto._amended import with_doubt, with_doubts_of
from ksivi.families import Empirical
from ksivi.results import Code, Status

Y = np.random.default_rng(3).normal(1.0, 1.0, size=(80, 2))
COUNTS = np.array([[1, 0], [2, 1], [0, 1], [3, 0], [1, 1], [2, 0], [1, 2], [1, 1]])


# The functions are the same for all data, so that nothing is compiled again.


def normal_prior(x):
    return -0.5 * jnp.sum(x**2)


def normal_likelihood(x, y):
    return -0.5 * jnp.sum((y - x[None]) ** 2)


def gamma_prior(u):
    return jnp.sum(u - jnp.exp(u))


def poisson_likelihood(u, y):
    return jnp.sum(y * u[None] - jnp.exp(u)[None])


def normal_model(rows):
    """Means with the prior N(0, 1) of rows with standard deviation 1."""
    y = jnp.asarray(Y[:rows], jnp.float32)
    return ksivi.Target.from_data(normal_prior, normal_likelihood, y, 2)


def exact_means(rows, n):
    mean, sd = Y[:rows].sum(axis=0) / (1 + rows), (1 + rows) ** -0.5
    return np.random.default_rng(0).normal(mean, sd, size=(n, 2))


def poisson_model(rows):
    """Log rates of Poisson counts; the rates have the prior Gamma(1, 1)."""
    counts = jnp.asarray(COUNTS[:rows], jnp.float32)
    return ksivi.Target.from_data(gamma_prior, poisson_likelihood, counts, 2)


def assert_log_rates(draws, rows):
    """Means and standard deviations of log Gamma(1 + Σy, 1 + n) variables."""
    shape, rate = 1 + COUNTS[:rows].sum(axis=0), 1 + rows
    sd, draws = np.sqrt(polygamma(1, shape)), np.asarray(draws, np.float64)
    # The excess kurtosis of log Gamma variables is at most 2.4.
    errors = np.array([1.0, np.sqrt((2 + 2.4) / 4)])[:, None] / np.sqrt(ROUGH)
    shift = (draws.mean(axis=0) - (digamma(shape) - np.log(rate))) / sd
    width = draws.std(axis=0) / sd - 1
    assert (np.abs([shift, width]) < 4 * errors).all()


def test_a_gaussian_and_a_sampler_are_starts_for_more_data():
    few = ksivi.fit(KEY, normal_model(20), progress=False)
    assert few.diagnostics.answer == "a Gaussian"
    mean, covariance = exact_means(20, 2).mean(axis=0), np.eye(2) / 20
    sampler = ksivi.Posterior.of(family_of(mean, covariance), normal_model(20))
    for init in (few, few.posterior, sampler):
        fit = ksivi.fit(jax.random.key(1), normal_model(80), init=init, progress=False)
        assert fit.trusted, fit.status
        assert fit.cost.steps == 0
        assert_equal_moments(fit.posterior.sample(KEY, 20_000), exact_means(80, 20_000), ROUGH)


def test_a_mixture_is_a_start_for_more_data():
    few = ksivi.fit(KEY, poisson_model(2), progress=False)
    assert few.trusted, few.status
    assert "mixture" in few.diagnostics.answer
    assert_log_rates(few.posterior.sample(KEY, 20_000), 2)
    fit = ksivi.fit(jax.random.key(1), poisson_model(8), init=few, progress=False)
    assert fit.trusted, fit.status
    assert_log_rates(fit.posterior.sample(KEY, 20_000), 8)
    assert "mode" not in str(fit.status)  # there was no search


def test_stored_draws_and_draws_without_density_are_no_start():
    stored = ksivi.Posterior.of(Empirical(jnp.zeros((5, 3))), gaussian())
    with pytest.raises(ValueError, match="init must be an earlier fit"):
        ksivi.fit(KEY, gaussian(), init=stored)
    at = np.array([-60.0, 0.0, 0.0])
    nowhere = ksivi.Target(
        lambda x: jnp.where(x[0] < -50, -0.5 * jnp.sum(x**2), -jnp.inf), dim=3, test_point=at
    )
    with pytest.raises(ValueError, match="init must have draws at which"):
        ksivi.fit(KEY, nowhere, init=posterior_of(), progress=False)


def test_targets_of_one_model_are_fitted_in_one_call():
    keys, targets = jax.random.split(KEY, 2), [normal_model(20), normal_model(80)]
    fits = ksivi.fit(keys, targets, progress=False)
    for fit, rows in zip(fits, (20, 80), strict=True):
        assert fit.trusted, fit.status
        assert_equal_moments(fit.posterior.sample(KEY, 20_000), exact_means(rows, 20_000), ROUGH)
    alone = ksivi.fit(keys[1], targets[1], progress=False)
    np.testing.assert_array_equal(
        alone.posterior.sample(KEY, 10), fits[1].posterior.sample(KEY, 10)
    )


def test_what_does_not_go_with_several_targets_is_named(tmp_path):
    keys, targets = jax.random.split(KEY, 3), [gaussian()] * 2
    with pytest.raises(ValueError, match=r"one key per target, got keys of shape \(3,\) for 2"):
        ksivi.fit(keys, targets)
    with pytest.raises(ValueError, match="key must"):
        ksivi.fit(KEY, targets)
    with pytest.raises(ValueError, match="checkpoint must be None for several targets"):
        ksivi.fit(keys[:2], targets, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"target must be a ksivi\.Target, got int"):
        ksivi.fit(keys[:2], [3, 4])


def test_an_earlier_fit_that_still_fits_is_checked_as_it_is():
    first = ksivi.fit(KEY, poisson_model(2), progress=False)
    again = ksivi.fit(jax.random.key(1), poisson_model(2), init=first, progress=False)
    assert again.trusted, again.status
    assert again.cost.score_evals < 0.7 * first.cost.score_evals
    assert_log_rates(again.posterior.sample(KEY, 20_000), 2)


def test_a_fit_knows_what_was_given():
    first = ksivi.fit(KEY, normal_model(20), progress=False)
    assert first.diagnostics.given == ()
    again = ksivi.fit(
        KEY, normal_model(20), init=first, at_least="gaussian", num_steps=5, progress=False
    )
    assert again.diagnostics.given == ("init", "again", "num_steps")
    assert again.diagnostics.num_steps == again.cost.steps
    other = ksivi.fit(KEY, normal_model(40), init=first, progress=False)
    assert other.diagnostics.given == ("init",)  # of another target
    refined = ksivi.fit(KEY, normal_model(20), refine="hmc", progress=False)
    assert refined.diagnostics.given == ("refine",)
    assert refined.refined.trusted, refined.refined.status


MODE = Code.MISSED_MODE.doubt("a mode at x = 9 has no draws")


@pytest.fixture(scope="module")
def one_mode():
    """A fit whose search met a mode that its draws lack."""
    return with_doubt(ksivi.fit(KEY, gaussian(), progress=False), MODE)


def test_a_doubt_that_only_a_search_can_remove_stays(one_mode):
    of = one_mode.posterior.target
    again = ksivi.fit(jax.random.key(1), of, init=one_mode, progress=False)
    assert not again.trusted
    assert again.status.doubts == (MODE,)
    refined = ksivi.fit(KEY, of, init=again, refine="hmc", progress=False)
    assert refined.status.doubts == (MODE,)  # once
    assert refined.refined.status.codes == ("missed-mode",)


STAY = [
    *(Code.MISSED_MODE, Code.SECOND_MODE, Code.ROWS_MODES, Code.IMPROPER),
    *(Code.RUNS_DIFFER, Code.RUN_NOT_EXAMINED),
]


@pytest.mark.parametrize("code", STAY, ids=[one.value for one in STAY])
def test_what_only_a_search_or_independent_runs_can_clear_stays(code, one_mode):
    doubt = code.doubt("something")
    earlier = dataclasses.replace(one_mode, status=Status.of_doubts("not trusted", [doubt]))
    again = with_doubts_of(passed(one_mode), earlier)
    assert again.status.doubts == (doubt,)
    assert not again.trusted


def passed(fit):
    return dataclasses.replace(fit, status=Status("converged", "good"), trusted=True)


def test_a_doubt_that_is_checked_again_does_not_stay():
    moved = Code.CHAINS_MOVE.doubt("chains move the draws")
    of = gaussian()
    doubted = with_doubt(ksivi.fit(KEY, of, progress=False), moved)
    again = ksivi.fit(jax.random.key(1), of, init=doubted, progress=False)
    assert again.trusted, again.status


def test_a_mode_of_another_target_is_not_known(one_mode):
    def shifted(x):
        return -0.5 * jnp.sum((x - 0.2) ** 2)

    again = ksivi.fit(KEY, ksivi.Target(shifted, dim=3), init=one_mode, progress=False)
    assert again.trusted, again.status


def test_a_doubt_about_a_target_with_minibatches_stays():
    of = ksivi.Target.from_data(
        normal_prior, normal_likelihood, jnp.asarray(Y, jnp.float32), 2, batch_size=20
    )
    first = with_doubt(ksivi.fit(KEY, of, progress=False), MODE)
    again = ksivi.fit(jax.random.key(1), of, init=first, progress=False)
    assert again.status.doubts == (MODE,)
    assert "again" in again.diagnostics.given
