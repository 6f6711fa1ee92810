"""Bounds of errors: they hold where draws are right, and show what is wrong."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ksivi.diagnostics import Better, error_bounds

N, CHAINS, STATES = 10_000, 1_000, 3


def bounds_of(seed, p, shift=0.0, scale=1.0, memory=0.0, weighed=0, df=None):
    """Draws of N(0, I), and chains that start there and reach a shifted and scaled distribution."""
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(CHAINS, p))
    fresh = (
        rng.normal(size=(STATES, CHAINS, p))
        if df is None
        else rng.standard_t(df, (STATES, CHAINS, p))
    )
    states = shift + scale * (memory * before + np.sqrt(1 - memory**2) * fresh)
    if not weighed:
        return error_bounds(rng.normal(size=(N, p)), Better(states, before))
    x = 1.5 * rng.normal(size=(weighed, p))
    log_w = np.sum(-0.5 * ((x - shift) / scale) ** 2 + 0.5 * (x / 1.5) ** 2, axis=1)
    weights = np.exp(log_w - log_w.max())
    return error_bounds(rng.normal(size=(N, p)), Better(states, before, x, weights / weights.sum()))


def surely(bounds):
    """The bounds less two errors, three rows."""
    return np.stack([bounds[i] - 2 * bounds[i + 1] for i in (0, 2, 4)])


@pytest.mark.parametrize("memory", [0.0, 0.9])
@pytest.mark.parametrize(("p", "weighed"), [(1, 0), (1, 4_000), (4, 4_000), (20, 0)])
def test_right_draws_are_not_said_to_be_off(memory, p, weighed):
    """In 40 fits at most 2 would be expected to have any bound above 0.

    Weights of draws that are 1.5 times as wide are reliable in four dimensions, not in twenty.
    """
    found = [bounds_of(s, p, memory=memory, weighed=weighed) for s in range(40)]
    assert sum(bool(np.any(surely(one) > 0)) for one in found) <= 4


def test_a_shift_a_width_and_tails_are_found():
    shifted = bounds_of(0, 3, shift=0.5)
    assert np.all(surely(shifted)[0] > 0.35)
    assert np.all(surely(shifted)[0] <= 0.5)
    wide = bounds_of(0, 3, scale=1.5)
    assert np.all(surely(wide)[1] > 0.2)
    assert np.all(surely(wide)[1] <= np.log(1.5))
    assert np.all(surely(wide)[0] <= 0)
    heavy = bounds_of(0, 3, df=3)
    assert np.all(surely(heavy)[2] > 0.02)  # 10.2% lie outside, not 2%


def test_weights_show_what_slow_chains_do_not():
    rng = np.random.default_rng(0)
    draws, before = rng.normal(size=(N, 1)), rng.normal(size=(CHAINS, 1))
    x = 1.5 * rng.normal(size=(8_000, 1))
    weights = np.exp(0.8 * x[:, 0] - 0.5 * x[:, 0] ** 2 + 0.5 * (x[:, 0] / 1.5) ** 2)
    stuck = Better(before[None], before)
    alone = error_bounds(draws, stuck)
    assert surely(alone)[0] <= 0
    both = error_bounds(draws, stuck._replace(weighed=x, weights=weights / weights.sum()))
    assert 0.6 < surely(both)[0, 0] <= 0.8


def test_starts_make_the_bounds_of_slow_chains_sharper():
    slow = bounds_of(0, 1, memory=0.95)
    fresh = bounds_of(0, 1)
    assert slow.mean_error < 0.7 * fresh.mean_error * np.sqrt(STATES)


def test_errors_are_those_of_repetitions():
    """Bounds of large changes are estimates: their scatter is the stated error."""
    found = [bounds_of(s, 1, shift=2.0, scale=1.3, memory=0.5) for s in range(200)]
    for i in (0, 2):
        scatter = np.std([one[i] for one in found])
        stated = np.mean([one[i + 1] for one in found])
        assert 0.8 < scatter / stated < 1.25


def test_constant_and_infinite_numbers():
    draws = np.random.default_rng(0).normal(size=(N, 3))
    states, before = draws[: 2 * CHAINS].reshape(2, CHAINS, 3).copy(), draws[-CHAINS:].copy()
    for part in (draws, before):
        part[:, 1] = 4.0
    states[:, :, 1] = 4.0
    states[0, 0, 2] = np.inf
    found = error_bounds(draws, Better(states, before))
    assert np.isfinite(found.mean[0])
    assert found.mean[1] == found.mean_error[1] == found.width[1] == found.tails[1] == 0
    assert np.isnan(found.mean[2])


@pytest.mark.parametrize("by", ["chains", "weights"])
def test_a_number_that_only_the_draws_hold_constant_is_not_examined(by):
    """Its standard deviation is 0, so no error can be given in its units. It is not shown to be right."""
    draws = np.random.default_rng(0).normal(size=(N, 2))
    states = draws[: 2 * CHAINS].reshape(2, CHAINS, 2).copy()
    weighed = draws[:500].copy()
    for part in [draws, *([states] if by == "weights" else [weighed])]:
        part[..., 1] = 4.0
    better = Better(states, draws[-CHAINS:], weighed, np.full(500, 1 / 500))
    found = error_bounds(draws, better)
    assert np.isfinite([bound[0] for bound in found]).all()
    assert np.isnan([bound[1] for bound in found]).all()


def test_the_benchmark_counts_bounds_that_exceed_errors():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks import bounds

    actual, noise = np.array([0.5, 0.02, 0.2, 0.0]), np.full(4, 0.01)
    least, errors = np.array([0.4, 0.05, 0.3, 0.03]), np.array([0.02, 0.01, 0.01, 0.02])
    found = bounds._counts(least, errors, actual, noise)
    assert (found["exceeds"], found["surely"]) == (2, 1)  # the second by less than the noise
    assert (found["large"], found["shown"]) == (2, 2)
    line = {"case": "a", "kind": "fit", "numbers": 4, "mean": found, "width": found}
    fine = {**line, "mean": found | {"exceeds": 0, "surely": 0}}
    fine["width"] = fine["mean"]
    said = bounds.summary([line, fine])
    assert "all bounds hold in 1 of 2 fits" in said
    assert "mean   exceeds in 2 of 8 numbers, surely in 1, in 1 of 2 fits" in said


def test_the_record_of_the_benchmark_is_the_one_that_pages_quote():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks import bounds

    said = bounds.summary(bounds._read(Path(bounds.__file__).parent / "records" / "bounds.jsonl"))
    assert "fit: 250 of 50 posteriors" in said
    assert "all bounds hold in 245 of 250 fits, and within the noise of the truth in 249" in said
    assert "short: 17 of 17 posteriors" in said
    assert "all bounds hold in 15 of 17 fits, and within the noise of the truth in 17" in said
    assert "all bounds hold in 204 of 250 fits, and within the noise of the truth in 214" in said
