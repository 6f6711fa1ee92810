"""Before and while `fit` trains: paths, Gaussians, the start, the stop rule."""

import math
import re

import jax
import numpy as np
import pytest

import ksivi
from known import MEAN, gaussian, two_modes
from ksivi.auto._gaussians import batch_and_match
from ksivi.auto._runs import Schedule, train_runs
from ksivi.auto._search import first_starts, search
from ksivi.auto._start import choose_start, why_no_start
from ksivi.auto._stopping import cooling_rates, has_settled
from ksivi.targets import Evaluator


def test_a_start_has_the_modes_that_search_found():
    rng, evaluate = np.random.default_rng(0), Evaluator(two_modes())
    found = search(evaluate, first_starts(rng, 12, 2))
    ends = found.points[:, 0]
    assert (ends < -3).any()
    assert (ends > 3).any()
    gaussians = batch_and_match(rng, evaluate, found.points, np.full(12, 0.1))
    start = choose_start(rng, evaluate, gaussians, found.points)
    share = np.mean(start.draws[:, 0] < 0)
    assert abs(share - 0.7) < 4 * np.sqrt(0.21 / 500)  # of 3,000 particles, some 500 effective
    np.testing.assert_allclose(np.sort(start.modes.shares), [0.3, 0.7], atol=0.06)
    evaluate = Evaluator(gaussian())
    gaussians = batch_and_match(rng, evaluate, np.zeros((2, 3)), np.array([0.1, 1.0]))
    alone = choose_start(rng, evaluate, gaussians, MEAN[None])
    assert alone.draws is None
    assert alone.modes is None


def test_a_search_without_a_start_says_what_to_do():
    rng, evaluate = np.random.default_rng(0), Evaluator(gaussian())
    found = search(evaluate, first_starts(rng, 4, 3))
    nowhere = found._replace(log_densities=np.full(4, -np.inf))
    for one, words in ((found, "no Gaussian .* a proper prior"), (nowhere, "no point")):
        said = why_no_start(evaluate, one)
        assert re.match(f"fit found {words}", said)
        assert "write the model on an unconstrained scale, with supports=" in said


def test_the_stop_rule_waits_for_certainty():
    rng = np.random.default_rng(0)
    steps = np.arange(3_000)
    flat, falling = (
        5 + 0.1 * rng.normal(size=(2, 3_000)),
        5 - 1e-4 * steps + 0.1 * rng.normal(size=(2, 3_000)),
    )
    noisy = 5 + 10 * rng.normal(size=(2, 3_000))
    assert has_settled(flat, 2_000)
    assert has_settled(np.full((1, 2_000), 2.0), 2_000)
    assert not has_settled(flat[:, :1_900], 2_000)
    assert not has_settled(falling, 2_000)
    assert not has_settled(noisy, 2_000)
    assert not has_settled(np.concatenate([flat[:1], falling[:1]]), 2_000)
    rates = cooling_rates(1.0, 10)
    assert rates[0] > 0.9
    assert 0 < rates[-1] < 0.01


def test_full_rate_and_cooling_take_the_maximum_number_of_steps():
    for most in [*range(1, 100), 500, 1_999, 5_000, 20_000]:
        plan = Schedule(ksivi.Recipe(max_steps=most), 1_500, math.inf)
        assert 0 <= plan.most_at_full_rate < most
        assert plan.end_of_cooling(plan.most_at_full_rate) == most
        # A bound that settles earlier is cooled for half as many chunks, and never past the end.
        for step in range(plan.chunk, plan.most_at_full_rate, plan.chunk):
            assert step < plan.end_of_cooling(step) <= most
            assert plan.chunk <= ksivi.Recipe().chunk
    default = Schedule(ksivi.Recipe(), 1_500, math.inf)
    assert (default.chunk, default.most_at_full_rate) == (500, 3_000)
    assert [default.end_of_cooling(n) for n in (1_500, 2_500, 3_000)] == [2_000, 3_500, 4_500]


@pytest.mark.parametrize("num_steps", [1, 50])
def test_a_bound_that_does_not_settle_is_trained_for_all_steps(num_steps):
    recipe = ksivi.Recipe(num_samples=4, num_mixing=4, max_steps=num_steps, chunk=20)
    families, chunks = [ksivi.SemiImplicit.location_scale(3)] * 2, []
    fits, ending = train_runs(
        jax.random.key(0), gaussian(), families, recipe, 1_500, math.inf, [chunks.append]
    )
    assert ending == "steps"
    assert fits[0].cost.steps == len(fits[0].history["bound"]) == num_steps
    assert (chunks[-1].step, chunks[-1].num_steps) == (num_steps, num_steps)
