"""`fit` on minibatched targets, and what it says of its rows and its price."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.auto import _many_rows, _on_rows
from ksivi.auto._peak import peaks_from_search
from ksivi.auto._price import Price
from ksivi.auto._subsample import FEWEST_ROWS, GOOD_ERROR, Sampler
from ksivi.targets import Evaluator, Passes
from regressions import (
    DIM,
    exact,
    log_likelihood,
    plate,
    regression,
    target_of,
)


@pytest.mark.parametrize("form", ["memory", "host", "plate"])
def test_fit_uses_some_rows_and_says_how_good_they_are(form):
    data = regression(40_000)
    mean, covariance, log_evidence = exact(data)
    target = {
        "memory": lambda: target_of(data),
        "host": lambda: target_of(ksivi.Rows(data)),
        "plate": lambda: plate(data),
    }[form]()
    fit = ksivi.fit(jax.random.key(0), target, progress=False)
    assert fit.trusted, str(fit.status)
    found = fit.diagnostics
    assert (found.num_rows, found.num_all_rows) == (FEWEST_ROWS, 40_000)
    assert found.rows_error < GOOD_ERROR
    assert f"checked on {FEWEST_ROWS:,} of 40,000 rows" in fit.status.reason
    assert "of 40,000; the log density is then off by" in str(fit)
    assert type(fit.posterior.target.density) is type(target.density)
    draws = np.asarray(fit.posterior.sample(jax.random.key(1), 10_000), float)
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(draws.mean(axis=0) - mean) / sd) < 0.05 + 4 / 100
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.05)
    if form == "plate":
        assert set(fit.posterior.draws(jax.random.key(1), 10)) == {"beta"}
    else:
        assert found.log_evidence == pytest.approx(log_evidence, abs=0.1)


def test_few_rows_are_all_used():
    data = regression(2_000)
    for rows in (data, ksivi.Rows(data)):
        fit = ksivi.fit(jax.random.key(0), target_of(rows), progress=False)
        assert fit.trusted, str(fit.status)
        assert fit.diagnostics.num_rows == 0
        mean, covariance, _ = exact(data)
        draws = np.asarray(fit.posterior.sample(jax.random.key(1), 10_000), float)
        sd = np.sqrt(np.diag(covariance))
        assert np.max(np.abs(draws.mean(axis=0) - mean) / sd) < 0.05 + 4 / 100


def test_a_second_mode_is_a_rival():
    data = {"y": 1 + np.random.default_rng(0).normal(size=20_000).astype(np.float32)}
    both = lambda x, rows: -0.5 * jnp.sum((rows["y"] - x[0] ** 2) ** 2)  # noqa: E731
    target = target_of(data, both, 1)
    rng, passes = np.random.default_rng(0), Passes(target.density)
    some = Evaluator(Sampler(rng, target, passes).plain())
    peaks = peaks_from_search(rng, some, passes, 1.0, 12)
    assert peaks.num_rivals == 1
    assert abs(abs(peaks.best.point[0]) - 1) < 0.02


def test_rows_that_are_not_enough_are_a_doubt(monkeypatch):
    data = regression(40_000)
    monkeypatch.setattr(_many_rows, "_LOADED_BYTES", 0)  # as if there were too many to load
    monkeypatch.setattr(_on_rows, "WORST_ERROR", 1e-9)
    fit = ksivi.fit(jax.random.key(0), target_of(ksivi.Rows(data)), progress=False)
    assert not fit.trusted
    assert fit.status.kind == "not trusted"
    assert "rows, and the log density is then off by" in fit.status.reason


def test_a_budget_that_is_too_short_is_named():
    words = r"budget_s = 1e-06 s ended during the search .* all 40,000 rows: give a larger budget_s"
    with pytest.raises(RuntimeError, match=words):
        ksivi.fit(jax.random.key(0), target_of(regression(40_000)), budget_s=1e-6, progress=False)


def test_a_tempered_target_is_fitted_as_such():
    data = regression(40_000)
    _, covariance, _ = exact(data)
    fit = ksivi.fit(jax.random.key(0), target_of(data).tempered(0.25), progress=False)
    draws = np.asarray(fit.posterior.sample(jax.random.key(1), 10_000), float)
    np.testing.assert_allclose(draws.std(axis=0), 2 * np.sqrt(np.diag(covariance)), rtol=0.05)


class _Bar:
    def __init__(self):
        self.remarks = []

    def evaluated(self, count):
        pass

    def remark(self, text):
        self.remarks.append(text)


def test_a_long_fit_is_announced_once(monkeypatch):
    clock = iter(np.arange(0.0, 10.0, 0.1))
    monkeypatch.setattr("ksivi.auto._price.time.perf_counter", lambda: float(next(clock)))
    all_rows = target_of(regression(20_000), batch_size=None)
    bar = _Bar()
    price = Price(bar, Evaluator(all_rows), True)
    for count in range(32, 32 * 20, 32):
        price(count)
    (remark,) = bar.remarks
    assert remark.endswith(
        ": it needs at least 80,000 evaluations, 3.1 ms each. Each evaluation reads all 20,000 rows. With "
        "batch_size=1_000, Target.from_data lets fit use some of the rows, and fit measures the error"
    )


@pytest.mark.parametrize("is_advised", [True, False])
def test_a_long_fit_without_rows_is_announced_in_whole_sentences(is_advised, monkeypatch):
    clock = iter(np.arange(0.0, 10.0, 0.1))
    monkeypatch.setattr("ksivi.auto._price.time.perf_counter", lambda: float(next(clock)))
    bar = _Bar()
    plain = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    price = Price(bar, Evaluator(plain), is_advised)
    for count in range(32, 32 * 20, 32):
        price(count)
    needs, more = bar.remarks[0].split(" ms each")
    assert "it needs at least 80,000 evaluations" in needs
    assert more.startswith(". If the log density is a sum") if is_advised else not more


def test_in_many_dimensions_many_rows_mean_fewer_evaluations(monkeypatch):
    clock = iter(np.arange(0.0, 10.0, 0.1))
    monkeypatch.setattr("ksivi.auto._price.time.perf_counter", lambda: float(next(clock)))
    few = lambda x, rows: log_likelihood(x[:DIM], rows)  # noqa: E731
    bar = _Bar()
    target = target_of(regression(20_000), few, dim=200, batch_size=None)
    price = Price(bar, Evaluator(target), True)
    for count in range(32, 32 * 20, 32):
        price(count)
    assert "at least 25,000 evaluations, 3.1 ms each" in bar.remarks[0]


def test_minibatches_are_advised_where_fit_would_use_them():
    of = lambda n, dim: target_of(regression(n), lambda x, _: -0.5 * jnp.sum(x**2), dim=dim)  # noqa: E731
    assert _many_rows.could_use_some_rows(of(20_000, 100))
    assert not _many_rows.could_use_some_rows(of(20_000, 200))  # too few for so many parameters
    assert not _many_rows.could_use_some_rows(of(10_000, 3))
    assert _many_rows.could_use_some_rows(ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2))


def test_a_short_fit_is_not_announced(monkeypatch):
    clock = iter(np.arange(0.0, 1.0, 0.001))
    monkeypatch.setattr("ksivi.auto._price.time.perf_counter", lambda: float(next(clock)))
    bar = _Bar()
    price = Price(bar, Evaluator(target_of(regression(20_000), batch_size=None)), True)
    for count in range(32, 32 * 20, 32):
        price(count)
    assert bar.remarks == []
