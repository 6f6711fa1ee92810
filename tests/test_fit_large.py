"""`fit` in 200 dimensions, against exact draws; and posteriors that it must not trust."""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi._core.numerics import generator
from ksivi._core.roots import DenseRoot
from ksivi.auto import _large
from ksivi.auto._search import first_starts, search
from ksivi.diagnostics import chains
from ksivi.families import WarpedGaussian
from ksivi.targets import Evaluator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.criterion import Criterion

DIM, NUM_GROUPS, GROUP_SD = 200, 40, 0.3
KEY = jax.random.key(0)


@functools.cache
def mixing():
    """Scales that differ by a factor of 100, and three wide directions."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((DIM, 3)))[0]
    scales = np.geomspace(0.1, 10, DIM)[rng.permutation(DIM)]
    return scales[:, None] * (np.eye(DIM) + (vectors * [2.0, 3.0, 4.0]) @ vectors.T)


def exact_draws(seed, n):
    """x = M u, with u a log width of groups, their effects, and logs of exponential variables."""
    rng = np.random.default_rng(seed)
    log_width = GROUP_SD * rng.standard_normal((n, 1))
    effects = np.exp(log_width) * rng.standard_normal((n, NUM_GROUPS))
    skewed = np.log(rng.exponential(size=(n, DIM - NUM_GROUPS - 1)))
    return np.concatenate([log_width, effects, skewed], axis=1) @ mixing().T


@functools.cache
def target():
    inverse = jnp.asarray(np.linalg.inv(mixing()), jnp.float32)

    def log_density(x):
        u = inverse @ x
        log_width, effects, skewed = u[0], u[1 : NUM_GROUPS + 1], u[NUM_GROUPS + 1 :]
        group = -NUM_GROUPS * log_width - 0.5 * jnp.sum(effects**2) * jnp.exp(-2 * log_width)
        return -0.5 * (log_width / GROUP_SD) ** 2 + group + jnp.sum(skewed - jnp.exp(skewed))

    return ksivi.Target(log_density, dim=DIM)


@pytest.fixture(scope="module")
def criterion():
    return Criterion(exact_draws(1, 10_000))


@pytest.fixture(scope="module")
def fit():
    return ksivi.fit(KEY, target(), progress=False)


def draws_of(posterior, seed=1):
    return np.asarray(posterior.sample(jax.random.key(seed), 1_000), np.float64)


def test_the_answer_is_a_warped_gaussian_and_accurate(fit, criterion):
    assert fit.trusted, fit.status
    assert fit.diagnostics.answer == "a warped Gaussian"
    assert isinstance(fit.posterior.family, WarpedGaussian)
    assert criterion.measure(draws_of(fit.posterior)).failures == []


def test_a_gaussian_with_the_exact_moments_is_not_accurate(criterion):
    """So the test of accuracy can fail."""
    exact = exact_draws(2, 10_000)
    rng = np.random.default_rng(3)
    gaussian = rng.multivariate_normal(exact.mean(axis=0), np.cov(exact, rowvar=False), 1_000)
    assert criterion.measure(exact[:1_000]).accurate
    assert not criterion.measure(gaussian).accurate


def test_the_correlations_are_those_of_exact_draws(fit):
    exact = exact_draws(2, 20_000)
    found = np.corrcoef(fit.posterior.host_draws(np.random.default_rng(4), 20_000), rowvar=False)
    apart = found - np.corrcoef(exact, rowvar=False)
    assert np.sqrt(np.mean(apart**2)) < 0.05
    assert np.abs(apart).max() < 0.25


def test_it_is_the_same_after_saving(fit, tmp_path):
    fit.posterior.save(tmp_path / "large.safetensors")
    back = ksivi.load(tmp_path / "large.safetensors")
    np.testing.assert_array_equal(draws_of(back), draws_of(fit.posterior))
    x = back.sample(KEY, 10)
    np.testing.assert_array_equal(back.log_prob(KEY, x), fit.posterior.log_prob(KEY, x))


@pytest.fixture(scope="module")
def again(fit):
    return ksivi.fit(jax.random.key(5), target(), init=fit, progress=False)


def test_an_earlier_fit_takes_the_place_of_the_search(fit, again, criterion):
    assert again.trusted, again.status
    assert fit.diagnostics.num_paths > 0
    assert again.diagnostics.num_paths == 0
    assert again.cost.score_evals < fit.cost.score_evals
    assert criterion.measure(draws_of(again.posterior)).failures == []


def test_a_fit_from_its_own_answer_is_quick(fit, again):
    assert again.cost.score_evals < 0.5 * fit.cost.score_evals


@pytest.mark.slow
def test_refined_draws_are_accurate(criterion):
    fit = ksivi.fit(KEY, target(), refine="hmc", progress=False)
    stored = len(fit.refined.posterior.family.points)
    # States of one chain depend on each other, so fewer count than there are.
    assert 256 <= fit.refined.effective < stored
    assert criterion.measure(draws_of(fit.refined.posterior)).failures == []


def test_states_of_settled_chains_are_trusted(monkeypatch):
    """A fit of logs of Gamma variables, whose chains go on, as many transitions as are said."""
    numbers = []

    def counted(rng, evaluate, before, num_transitions, frame):
        numbers.append(num_transitions)
        return chains(rng, evaluate, before, num_transitions, frame)

    monkeypatch.setattr(_large, "chains", counted)
    gammas = ksivi.Target(lambda x: jnp.sum(1.5 * x - jnp.exp(1.2 * x)), dim=151)
    fit = ksivi.fit(KEY, gammas, refine="hmc", progress=False)
    assert fit.refined.trusted, fit.refined.status
    assert len(numbers) > 1
    assert fit.refined.num_transitions == sum(numbers)
    table = fit.refined.table()
    assert np.mean([row.trusted for row in table]) > 0.9


def test_a_budget_that_ends_the_search_is_an_error():
    with pytest.raises(RuntimeError, match=r"budget_s = 0\.05 s ended during the search"):
        ksivi.fit(KEY, target(), budget_s=0.05, progress=False)


def test_a_budget_that_ends_the_chains_is_a_doubt(again):
    """The time is less than half of what chains need. On a busy machine the search may end first."""
    budget = 0.4 * again.cost.seconds
    try:
        found = ksivi.fit(KEY, target(), budget_s=budget, progress=False)
    except RuntimeError as error:
        assert "ended during the search" in str(error)  # noqa: PT017
        return
    assert not found.trusted
    assert "ended before a better answer was tried" in str(found.status)


def two_modes():
    """Half of N(6, I) and half of N(−6, I): 170 standard deviations apart."""

    def log_density(x):
        return jnp.logaddexp(-0.5 * jnp.sum((x - 6) ** 2), -0.5 * jnp.sum((x + 6) ** 2))

    return ksivi.Target(log_density, dim=DIM)


def test_the_search_meets_both_modes():
    """So the fit below could know that there are two."""
    starts = first_starts(generator(KEY), 4, DIM)
    ends = search(Evaluator(two_modes()), starts).points.mean(axis=1)
    np.testing.assert_allclose([ends.min(), ends.max()], [-6, 6], atol=0.01)


def test_a_fit_that_misses_a_mode_is_not_trusted():
    found = ksivi.fit(KEY, two_modes(), progress=False)
    share = np.mean(draws_of(found.posterior).mean(axis=1) > 0)
    assert not found.trusted or 0.3 < share < 0.7


def test_modes_that_differ_in_one_coordinate_are_two():
    """They are 16 standard deviations apart, which is less than the length of a draw."""

    def log_density(x):
        first = jnp.logaddexp(-0.5 * (x[0] + 7.5) ** 2, -0.5 * (x[0] - 8.5) ** 2)
        return first - 0.5 * jnp.sum(x[1:] ** 2)

    found = ksivi.fit(jax.random.key(1), ksivi.Target(log_density, dim=DIM), progress=False)
    assert "the search found a second mode, which has no draws: near x[0] =" in str(found.status)


def student(dim, degrees=3):
    """Its radius, which no coordinate shows, changes slowly along a chain."""
    density = lambda x: -(degrees + dim) / 2 * jnp.log1p(jnp.sum(x**2) / degrees)  # noqa: E731
    return ksivi.Target(density, dim=dim)


def test_chains_that_drift_in_energy_alone_have_not_forgotten():
    rng = np.random.default_rng(0)
    normal = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=500)
    starts, frame = rng.standard_normal((256, 500)), (np.zeros(500), DenseRoot(np.eye(500)))
    good = chains(rng, Evaluator(normal), starts, 40, frame)
    drifting = chains(rng, Evaluator(student(500)), starts, 40, frame)
    assert good.energy_memory < 0.2 < 0.5 < drifting.energy_memory
    assert np.max(drifting.memory) < 0.3


@pytest.mark.slow
def test_heavy_joint_tails_are_not_trusted_with_light_ones():
    found = ksivi.fit(KEY, student(400), progress=False)
    widths = np.quantile(draws_of(found.posterior), 0.99, axis=0)
    assert not found.trusted or np.abs(np.median(widths) / 4.54 - 1) < 0.2


@pytest.mark.slow
def test_a_funnel_is_not_trusted():
    """Widths of all coordinates differ by factors of hundreds with the first."""

    def log_density(x):
        rest = -0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 0.5 * (DIM - 1) * x[0]
        return -0.5 * (x[0] / 3) ** 2 + rest

    found = ksivi.fit(KEY, ksivi.Target(log_density, dim=DIM), budget_s=120, progress=False)
    first = draws_of(found.posterior)[:, 0]
    is_right = abs(first.mean()) < 0.3 * 3 and abs(np.log(first.std() / 3)) < 0.1
    assert is_right or not found.trusted
