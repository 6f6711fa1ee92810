"""`fit` on many rows in many dimensions, against exact draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

GROUPS, PER_GROUP = 160, 250
NUM_ROWS = GROUPS * PER_GROUP
KEY = jax.random.key(0)


def counts():
    """Rows in random order: a group, and a count with a rate of its own for each group."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(GROUPS), PER_GROUP))
    y = rng.poisson(rng.gamma(4.0, 1.0, size=GROUPS)[group])
    return {"group": group, "y": y.astype(np.float32)}


def log_prior(x):
    """The rate exp(x) has a Gamma(4, 1) prior."""
    return jnp.sum(4 * x - jnp.exp(x))


def log_likelihood(x, rows):
    log_rate = x[rows["group"]]
    return jnp.sum(rows["y"] * log_rate - jnp.exp(log_rate))


def target():
    return ksivi.Target.from_data(log_prior, log_likelihood, counts(), GROUPS, batch_size=100)


def exact_draws(n):
    """The posterior of a rate is Gamma(4 + ∑ y, 1 + the number of rows)."""
    data = counts()
    sums = np.bincount(data["group"], data["y"], minlength=GROUPS)
    rng = np.random.default_rng(1)
    return np.log(rng.gamma(4 + sums, 1 / (1 + PER_GROUP), size=(n, GROUPS)))


def assert_right(fit, n=10_000):
    """Means within 0.1 standard deviations and widths within 10%, and four standard errors."""
    draws, truth = np.asarray(fit.posterior.sample(jax.random.key(1), n), float), exact_draws(n)
    sd = truth.std(axis=0)
    assert np.max(np.abs(draws.mean(axis=0) - truth.mean(axis=0)) / sd) < 0.1 + 4 * (2 / n) ** 0.5
    assert np.max(np.abs(np.log(draws.std(axis=0) / sd))) < 0.1 + 4 * n**-0.5


@pytest.fixture(scope="module")
def fit():
    return ksivi.fit(KEY, target(), progress=False)


def test_some_rows_are_enough(fit):
    assert fit.trusted, fit.status
    assert 0 < fit.diagnostics.num_rows < NUM_ROWS
    assert fit.diagnostics.rows_error < 0.1
    assert_right(fit)


@pytest.mark.slow
def test_an_earlier_fit_takes_the_place_of_the_search(fit):
    again = ksivi.fit(KEY, target(), init=fit, progress=False)
    assert again.trusted, again.status
    assert again.diagnostics.num_paths == 0
    assert_right(again)


@pytest.mark.slow
def test_without_a_hessian_the_correction_is_of_first_order(fit, monkeypatch):
    """As above 2,000 dimensions: the error is larger, and it is seen, so all rows are used."""
    monkeypatch.setattr("ksivi.auto._peak._MOST_DIM", GROUPS - 1)
    without = ksivi.fit(KEY, target(), progress=False)
    assert without.diagnostics.num_rows == 0
    assert without.trusted, without.status
    assert_right(without)
