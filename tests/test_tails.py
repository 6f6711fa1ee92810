"""Improper posteriors: the mass along curves and straight lines, against proper twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.auto._search import search
from ksivi.auto._tails import (
    _directions,
    _improper_coordinate,
    _is_flat,
    improper_from,
    is_improper,
)
from ksivi.auto._walks import Trace
from ksivi.targets import Evaluator

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools(x):
    """Eight schools with a flat prior on log τ: improper as log τ → −∞, with θ → μ."""
    mu, log_tau, theta = x[0], x[1], x[2:]
    prior = -0.5 * (mu / 5) ** 2 - 0.5 * jnp.sum(((theta - mu) / jnp.exp(log_tau)) ** 2)
    return prior - 8 * log_tau - 0.5 * jnp.sum(((EFFECTS - theta) / ERRORS) ** 2)


def half_cauchy(log_scale):
    return log_scale - jnp.log1p(jnp.exp(2 * log_scale) / 25)


def doubt_from(log_density, centre, scales):
    """The doubt of walks along all coordinates from a centre."""
    target = log_density
    if not isinstance(target, ksivi.Target):
        target = ksivi.Target(log_density, dim=len(centre))
    place = (np.array(centre, float), np.array(scales, float))
    return _improper_coordinate(Evaluator(target), *place, _directions(target))[0]


CASES = {
    "a scale in a funnel": (
        schools,
        lambda x: half_cauchy(x[1]),
        [4.5, 0.5, *[5.0] * 8],
        [4.5, 1.6, *[6.0] * 8],
        "x[1] falls",
    ),
    "a product": (
        lambda x: -0.5 * (x[0] * x[1] - 1) ** 2,
        lambda x: -0.5 * jnp.sum(x**2) / 9,
        [1.0, 1.0],
        [2.0, 2.0],
        "x[0] grows",
    ),
    "one observation": (
        lambda x: -x[1] - 0.5 * (x[0] / jnp.exp(x[1])) ** 2,
        lambda x: -0.5 * jnp.sum(x**2) / 4,
        [0.0, 0.0],
        [2.0, 2.0],
        "x[1] falls",
    ),
    "more columns than rows": (
        lambda x: -0.5 * (x @ jnp.array([1.0, 0.5, -2.0, 0.3]) - 1) ** 2,
        lambda x: -0.5 * jnp.sum(x**2) / 9,
        [0.1] * 4,
        [1.0] * 4,
        "x[0] grows",
    ),
    "a negligible tail": (
        lambda x: jnp.sum(jnp.logaddexp(-0.5 * (10 - x) ** 2, -45.0)),
        lambda x: -0.5 * jnp.sum(x**2) / 100,
        [10.0, 10.0],
        [1.3, 1.3],
        "x[0] grows",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_curves_along_which_the_mass_does_not_fall_are_found(name):
    log_density, log_prior, centre, scales, where = CASES[name]
    doubt = doubt_from(log_density, centre, scales)
    assert doubt is not None
    assert f"too slowly to be finite as {where}." in str(doubt)
    assert doubt_from(lambda x: log_density(x) + log_prior(x), centre, scales) is None


def test_heavy_tails_that_are_proper_raise_no_doubt():
    student = lambda x: -2.0 * jnp.log1p(jnp.sum(x**2))  # noqa: E731
    assert doubt_from(student, np.zeros(3), np.ones(3)) is None


def test_straight_lines_are_looked_at_in_one_dimension_too():
    draws = np.random.default_rng(0).normal(size=(500, 1))
    flat = Evaluator(ksivi.Target(lambda x: -0.5 * jnp.log1p(x[0] ** 2), dim=1))
    assert "as x[0] grows" in str(is_improper(flat, draws, np.eye(1)))
    cauchy = Evaluator(ksivi.Target(lambda x: -jnp.log1p(x[0] ** 2), dim=1))
    assert is_improper(cauchy, draws, np.eye(1)) is None


@pytest.mark.filterwarnings("error")
def test_a_proper_target_costs_few_evaluations():
    """Ten correlated coordinates, and log p is NaN beyond the mass."""
    factor = jnp.asarray(np.random.default_rng(1).normal(size=(10, 10)) + 3 * np.eye(10))

    def log_density(x):
        u = factor @ x
        return jnp.where(jnp.max(jnp.abs(u)) < 40, -0.5 * jnp.sum(u**2), jnp.nan)

    draws = np.linalg.solve(factor, np.random.default_rng(0).normal(size=(10, 2_000))).T
    evaluate = Evaluator(ksivi.Target(log_density, dim=10))
    assert is_improper(evaluate, draws, np.eye(10)) is None
    assert evaluate.count < 8_000


def test_coordinates_have_the_names_of_the_model():
    target = ksivi.Target.from_pytree(
        lambda p: -0.5 * jnp.sum(p["slope"] ** 2) - jnp.log(p["scale"]),
        {"slope": jnp.zeros(2), "scale": jnp.ones(())},
        supports={"scale": ksivi.supports.positive()},
    )
    doubt = doubt_from(target, np.zeros(3), np.ones(3))
    assert "as scale grows, on the unconstrained scale" in str(doubt)


def test_densities_without_second_derivatives_are_walked_too():
    """Curvatures are differences of scores, so a score from outside of JAX is enough."""

    def score(x):
        inner = x[..., :1] * x[..., 1:] - 1
        return np.asarray(-inner * x[..., ::-1], x.dtype)

    product = ksivi.Target(
        lambda x: -0.5 * (x[0] * x[1] - 1) ** 2,
        dim=2,
        score=lambda x: jax.pure_callback(
            score, jax.ShapeDtypeStruct((2,), x.dtype), x, vmap_method="expand_dims"
        ),
    )
    doubt = doubt_from(product, np.ones(2), np.full(2, 2.0))
    assert "x[0] grows" in str(doubt)


def test_a_walk_that_comes_to_another_mode_is_not_flat():
    """The mass rises to a second mode and falls again; a walk of a heavy tail goes on."""
    distances = np.append(0, 2.0 ** np.array([*np.arange(0, 4.1, 0.5), 6, 8, 12, 16, 20, 24]))
    second = np.array([0, -1.4, -2.7, -5.2, -7.8, -2.3, -4.6, -19.3, *[-60.0] * 8])
    is_sure = np.arange(16) < 8
    with np.errstate(divide="ignore"):
        heavy = np.where(distances > 0, -0.9 * np.log(distances), 0)
    masses, sures = np.stack([second, heavy, heavy]), np.stack([is_sure, is_sure, ~is_sure])
    # The third walk cannot be believed at its start.
    flat = _is_flat(Trace(masses, masses, sures, np.zeros_like(sures)))
    np.testing.assert_array_equal(flat, [False, True, False])


def test_a_walk_on_its_way_to_the_mass_is_no_tail():
    """There both p and the mass rise. In a funnel only p does, and along a plain only the mass.

    The mass that rises up to the largest number is in no place.
    """
    rising, level = 5.0 * np.arange(16), np.zeros(16)
    masses = np.stack([rising, level, rising, rising])
    log_p = np.stack([rising, rising, level, rising])
    sures, is_last = np.tile(np.arange(16) < 8, (4, 1)), np.zeros((4, 16), bool)
    is_last[3, 7] = True
    flat = _is_flat(Trace(masses, log_p, sures, is_last))
    np.testing.assert_array_equal(flat, [False, True, True, True])


def test_a_walk_that_came_to_a_tail_late_is_flat_only_after_a_long_way():
    late = np.tile([-20.0, -15, -10, -5, *np.zeros(12)], (2, 1))
    sures = np.stack([np.arange(16) < 6, np.arange(16) < 9])
    flat = _is_flat(Trace(late, late, sures, np.zeros_like(sures)))
    np.testing.assert_array_equal(flat, [False, True])


def test_an_improper_posterior_shows_from_early_points():
    """Also if only one of several points shows it."""
    points = np.array([[0.0, -60.0, *[5.0] * 8], [4.5, 0.5, *[5.0] * 8]])
    improper = Evaluator(ksivi.Target(schools, dim=10))
    assert improper_from(improper, points[:1]) is None
    assert "x[1] falls" in str(improper_from(improper, points))
    proper = Evaluator(ksivi.Target(lambda x: schools(x) + half_cauchy(x[1]), dim=10))
    assert improper_from(proper, points) is None


@pytest.fixture(scope="module")
def badly_scaled():
    """A regression with flat priors, a small σ, and columns that differ by large factors."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(100, 4)) * np.array([1, 5, 20, 50]) + np.array([1, 5, 20, 50])
    outcomes = jnp.asarray(columns @ np.ones(4) + rng.normal(size=100))
    columns = jnp.asarray(columns)

    def log_density(x):
        residuals = (outcomes - columns @ x[:4]) * jnp.exp(-x[4])
        return -0.5 * jnp.sum(residuals**2) - 100 * x[4]

    return Evaluator(ksivi.Target(log_density, dim=5))


def test_far_from_the_mass_of_a_proper_posterior_there_is_no_doubt(badly_scaled):
    rng = np.random.default_rng(1)
    for _ in range(5):
        early = search(badly_scaled, rng.standard_normal((4, 5))).early
        assert improper_from(badly_scaled, early) is None


def test_walks_from_early_points_cost_few_evaluations():
    """A direction in which the mass was seen to go is not walked from the next point."""
    normal = Evaluator(ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=20))
    early = np.random.default_rng(0).normal(size=(4, 20))
    assert improper_from(normal, early[:1]) is None
    once, normal.count = normal.count, 0
    assert improper_from(normal, early) is None
    assert normal.count == once
    assert once < 8_000
