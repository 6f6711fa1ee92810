"""Passes over all rows, surrogates from some rows, and their error."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.auto._peak import peak_from
from ksivi.auto._subsample import FEWEST_ROWS, GOOD_ERROR, Sampler, stratified
from ksivi.targets import CHUNK, Evaluator, Passes, needs_scores
from regressions import (
    COEFFICIENTS,
    DIM,
    NOISE,
    coins,
    counts,
    exact,
    logistic,
    plate,
    poisson,
    rare_columns,
    regression,
    target_of,
)


@pytest.mark.parametrize("form", ["memory", "host", "plate"])
@pytest.mark.parametrize("num_rows", [20_000, 70_001])  # one block; two blocks and a rest
def test_passes_sum_over_all_rows(form, num_rows):
    data = regression(num_rows)
    mean, covariance, _ = exact(data)
    target = {
        "memory": lambda: target_of(data),
        "host": lambda: target_of(ksivi.Rows(data, block_size=700)),
        "plate": lambda: plate(data),
    }[form]()
    passes = Passes(target.density)
    points = mean + np.random.default_rng(0).normal(size=(70, DIM)) * 0.1
    values, scores = passes.differences(points, mean)
    steps, precision = points - mean, np.linalg.inv(covariance)
    np.testing.assert_allclose(
        values, -0.5 * np.einsum("ni,ij,nj->n", steps, precision, steps), rtol=1e-4, atol=1e-2
    )
    np.testing.assert_allclose(scores, -steps @ precision, rtol=1e-3, atol=1.0)
    rest = 1e-6 if num_rows % CHUNK == 0 or num_rows % 250 == 0 else 0.01  # the Hessian lacks it
    np.testing.assert_allclose(np.diag(passes.hessian(mean)), -np.diag(precision), rtol=rest + 1e-4)
    if form != "plate":  # NumPyro's normal has its constants
        x, y = data["x"].astype(float), data["y"].astype(float)
        height = -0.5 * mean @ mean - 0.5 * np.sum((y - x @ mean) ** 2) / NOISE**2
        assert passes.value(mean) == pytest.approx(height, rel=1e-6)


def test_a_pass_ends_at_its_deadline():
    with pytest.raises(ksivi.targets.OutOfTime):
        Passes(target_of(regression(20_000)).density, deadline=0.0).value(np.zeros(DIM))


class CountedReads:
    """An array that counts the rows that are read."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.count = array, array.shape, array.dtype, 0

    def __getitem__(self, span):
        self.count += span.stop - span.start
        return self.array[span]


@pytest.mark.parametrize("form", ["memory", "host", "host with long blocks"])
def test_a_hessian_of_some_rows_has_rows_of_all_groups(form):
    """Data that are sorted by group: the first rows say nothing of the last coefficient."""
    num_rows = 200_000
    x = np.random.default_rng(0).normal(size=(num_rows, DIM)).astype(np.float32)
    x[: num_rows // 2, 2] = 0
    x[num_rows // 2 :, 1] = 0
    y = x @ COEFFICIENTS.astype(np.float32)
    counted = CountedReads(x)
    target = {
        "memory": lambda: target_of({"x": x, "y": y}),
        "host": lambda: target_of(ksivi.Rows({"x": counted, "y": y})),
        "host with long blocks": lambda: target_of(
            ksivi.Rows({"x": counted, "y": y}, block_size=50_000)
        ),
    }[form]()
    passes = Passes(target.density)
    counted.count = 0
    some, num_read = passes.hessian(np.zeros(DIM), 16_384), counted.count
    all_rows = passes.hessian(np.zeros(DIM))
    assert np.abs(some - all_rows).max() > 0
    np.testing.assert_allclose(np.diag(some), np.diag(all_rows), rtol=0.05)
    if form == "host":
        assert num_read < 70_000


def test_a_hessian_of_some_rows_does_not_depend_on_the_period_of_the_data():
    x = np.zeros((200_000, DIM), np.float32)
    x[np.arange(200_000), np.arange(200_000) % DIM] = 1
    passes = Passes(target_of({"x": x, "y": x[:, 0]}).density)
    some, all_rows = passes.hessian(np.zeros(DIM), 16_384), passes.hessian(np.zeros(DIM))
    np.testing.assert_allclose(np.diag(some), np.diag(all_rows), rtol=0.05)


def test_a_row_that_is_not_finite_is_named():
    """When the target is made, rows of the host are not all read."""
    data = regression(40_000)
    Passes(target_of(ksivi.Rows(data)).density).require_finite(np.zeros(DIM))
    data["y"][31_234] = np.nan
    target = target_of(ksivi.Rows(data))
    with pytest.raises(ValueError, match=r"all 40,000 rows.*got nan.*row 31234 of 40,000"):
        Passes(target.density).require_finite(np.zeros(DIM))


def test_a_gradient_that_is_not_finite_is_refused():
    steep = lambda x, rows: -jnp.sum(rows["y"] ** 2 * jnp.sqrt(jnp.abs(x[0] - 1.0)))  # noqa: E731
    passes = Passes(target_of(ksivi.Rows(regression(40_000)), steep).density)
    with pytest.raises(ValueError, match=r"^the gradient of log_prior"):
        passes.require_finite(np.ones(DIM))


def test_rows_of_the_host_are_found_by_index():
    rows = ksivi.Rows({"a": np.arange(1_003), "b": np.arange(1_003)[:, None] * 2}, block_size=10)
    chosen = np.random.default_rng(0).choice(1_003, 200, replace=False)
    np.testing.assert_array_equal(rows.at(chosen)["a"], chosen)
    np.testing.assert_array_equal(rows.at(chosen)["b"][:, 0], 2 * chosen)
    np.testing.assert_array_equal(rows.between(17, 41)["a"], np.arange(17, 41))


def test_a_surrogate_has_the_gradient_and_the_hessian_of_all_rows():
    target = target_of(rare_columns(60_000, coins), logistic, 4)
    passes = Passes(target.density)
    sampler = Sampler(np.random.default_rng(0), target, passes)
    peak = peak_from(passes, np.zeros(4), 1.0)
    found = sampler.around(peak)
    whole = Evaluator(target)
    step = 0.2 * peak.root.matrix @ np.ones(4)
    points = np.stack([peak.point, peak.point + step, peak.point - step])
    scores, others = whole(points)[1], Evaluator(found.target)(points)[1]
    sd = np.sqrt(np.diag(peak.root.matrix @ peak.root.matrix.T))
    np.testing.assert_allclose(others[0] * sd, scores[0] * sd, atol=5e-3)
    curves = [(both[1] - both[2]) * sd for both in (scores, others)]
    np.testing.assert_allclose(curves[1], curves[0], rtol=0.01, atol=0.01)


@pytest.mark.parametrize(("likelihood", "response"), [(logistic, coins), (poisson, counts)])
def test_rows_with_rare_columns_are_preferred(likelihood, response):
    target = target_of(rare_columns(60_000, response), likelihood, 4)
    passes = Passes(target.density)
    sampler = Sampler(np.random.default_rng(0), target, passes)
    peak = peak_from(passes, np.zeros(4), 1.0)
    draws = peak.draws(sampler.rng, 64)
    exact_values, _ = passes.differences(draws, peak.point)
    plain = sampler._corrected(peak, FEWEST_ROWS, None, draws, exact_values)
    weighed = sampler._grown(peak, plain, draws, exact_values)
    assert plain.error > GOOD_ERROR
    assert weighed.num_rows == plain.num_rows
    assert weighed.error < plain.error / 4
    assert sampler.around(peak).error <= GOOD_ERROR


def test_strata_hold_every_row_once():
    sizes = np.random.default_rng(0).pareto(1.0, size=10_000)
    strata = stratified(sizes, 16)
    np.testing.assert_array_equal(np.sort(np.concatenate(strata)), np.arange(10_000))
    assert min(map(len, strata)) >= CHUNK
    assert sizes[strata[0]].min() >= sizes[strata[1]].max()
    alike = stratified(np.ones(10_000), 16)
    assert max(map(len, alike)) - min(map(len, alike)) <= 16


def test_scores_take_the_place_of_values_if_rows_are_many():
    assert [needs_scores(10**n, FEWEST_ROWS) for n in range(4, 9)] == [False] * 2 + [False] + [
        True
    ] * 2


def test_differences_of_many_rows_are_exact_enough():
    """The log density of 50 million rows, from some: float32 sums would be off by whole nats."""
    data = regression(20_000)
    mean, covariance, _ = exact(data)
    scale = 2_500
    copies = {
        name: np.broadcast_to(part[None], (scale, *part.shape)) for name, part in data.items()
    }

    class Repeated:
        """Rows that repeat, without the memory."""

        def __init__(self, part):
            self.part = part
            self.shape = (part.shape[0] * part.shape[1], *part.shape[2:])
            self.dtype = part.dtype

        def __getitem__(self, span):
            return self.part[0][np.arange(span.start, span.stop) % self.part.shape[1]]

    target = target_of(ksivi.Rows({name: Repeated(part) for name, part in copies.items()}))
    sampler = Sampler(np.random.default_rng(0), target, Passes(target.density))
    assert sampler.passes.num_rows == 50_000_000
    rows = sampler._surrogate(*sampler._uniform(FEWEST_ROWS), mean)
    some = sampler._with(rows)
    sd = np.sqrt(np.diag(covariance) / scale)
    points = (mean + sd * np.random.default_rng(1).normal(size=(64, DIM))).astype(np.float32)
    values, scores = Evaluator(some)(points.astype(float))
    kept = np.asarray(rows.density.data["x"], float), np.asarray(rows.density.data["y"], float)

    def height(x):
        return (
            -0.5 * x @ x - 0.5 * np.sum((kept[1] - kept[0] @ x) ** 2) / NOISE**2 * 5e7 / FEWEST_ROWS
        )

    anchor = mean.astype(np.float32).astype(float)
    true = np.array([height(x) - height(anchor) for x in points.astype(float)])
    assert np.std(values - true) < 0.01
    assert np.isfinite(scores).all()


def test_an_error_that_is_not_finite_is_infinite():
    from ksivi.auto._subsample import _spread

    assert _spread(np.array([0.0, np.inf])) == math.inf
    assert _spread(np.array([0.0, 2.0])) == 1.0
