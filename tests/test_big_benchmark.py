"""`benchmarks.big` at tiny sizes: its posteriors, their truths, its processes and its table."""

import sys
from argparse import Namespace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import big, big_chains, big_models, big_tasks, big_truths
from benchmarks.big_grid import draw_on_grid, log_integral
from benchmarks.big_names import DEFAULT, NETWORKS, ON_DISK, parse
from benchmarks.big_problems import BATCH, all_rows, problem

import ksivi


def _stein(target, draws):
    """The worst of E s = 0 and E (x − E x) s = −1, which hold at the truth, in standard errors."""
    x = np.asarray(draws, float)
    with jax.numpy_rank_promotion("allow"):
        score = np.asarray(jax.vmap(all_rows(target).score)(jnp.asarray(x, jnp.float32)), float)
    both = np.concatenate([score, (x - x.mean(axis=0)) * score + 1], axis=1)
    return np.abs(both.mean(axis=0) / (both.std(axis=0) / np.sqrt(len(x)))).max()


def _values(target, points):
    return np.array([float(target.log_density(jnp.asarray(x, jnp.float32))) for x in points])


def test_names_have_sizes():
    assert parse("negative-binomial-centred-40x3").sizes == (40, 3)
    assert {parse(name).text for name in (*DEFAULT, ON_DISK)} == {*DEFAULT, ON_DISK}
    assert [parse(name).of for name in DEFAULT if name.startswith("network")] == list(NETWORKS)
    for name in ("logistic-100", "poisson-0", "poisson", "network-paris", "logit-10x2"):
        with pytest.raises(ValueError, match=name):
            parse(name)


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("logistic-9000x4", 4),
        ("covertype-200", 54),
        ("negative-binomial-60x4", 13),
        ("negative-binomial-centred-9000x4", 13),
        ("poisson-5", 7),
        ("poisson-centred-5", 7),
        ("volatility-9", 12),
        ("volatility-centred-9", 12),
        ("horseshoe-6x4", 10),
    ],
)
def test_each_problem_has_its_dimension_and_many_rows_have_minibatches(name, dim):
    target = problem(name).target
    assert target.dim == dim
    assert target.is_minibatched == ("9000" in name)
    assert bool(jnp.isfinite(target.score(jnp.full(dim, 0.1))).all())


def test_rows_on_disk_are_written_once_and_are_those_in_memory(tmp_path):
    with pytest.raises(ValueError, match="--disk"):
        problem("disk-9000x4")
    target = problem("disk-9000x4", tmp_path).target
    (path,) = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    problem("disk-9000x4", tmp_path)
    assert path.stat().st_mtime_ns == written
    assert target.host_rows.num_rows == 9_000
    in_memory, x = problem("logistic-9000x4").target, jnp.linspace(-1, 1, 4)
    np.testing.assert_allclose(all_rows(target).score(x), all_rows(in_memory).score(x), rtol=1e-4)


@pytest.mark.parametrize(
    ("noncentred", "centred", "to_centred", "log_jacobian"),
    [
        ("poisson-5", "poisson-centred-5", True, lambda x: 5 * x[1]),
        (
            "negative-binomial-60x4",
            "negative-binomial-centred-60x4",
            False,
            lambda x: 4 * (x[1] + x[3]),
        ),
        (
            "volatility-9",
            "volatility-centred-9",
            True,
            lambda x: 9 * x[2] - 0.5 * np.log(1 - np.tanh(x[1] / 2) ** 2),
        ),
    ],
)
def test_both_forms_are_one_posterior(noncentred, centred, to_centred, log_jacobian):
    """log p(z) − log p(θ(z)) − log |∂θ/∂z| is the same at all points."""
    one, other = problem(noncentred), problem(centred)
    points = np.random.default_rng(0).normal(0, 0.7, size=(6, one.target.dim))
    if to_centred:
        assert (other.easy, one.back) == (noncentred, None)
        z, theta = points, other.back(points)
    else:
        assert (one.easy, other.back) == (centred, None)
        z, theta = one.back(points), points
    gap = _values(one.target, z) - _values(other.target, theta)
    gap -= np.array([log_jacobian(x) for x in z])
    np.testing.assert_allclose(gap, gap[0], atol=2e-3)


def test_the_path_of_log_variances_is_its_recursion():
    z, h = np.random.default_rng(0).normal(size=6), np.zeros(6)
    h[0] = -1 + 0.3 * z[0] / np.sqrt(1 - 0.81)
    for t in range(1, 6):
        h[t] = -1 + 0.9 * (h[t - 1] + 1) + 0.3 * z[t]
    found = big_models.log_variances(-1.0, 0.9, 1 - 0.81, 0.3, jnp.asarray(z, jnp.float32))
    np.testing.assert_allclose(found, h, atol=1e-5)


def test_draws_on_a_grid_are_those_of_the_density():
    """x = log g of a gamma variable g has the log density a x − eˣ, which is skewed."""
    rng, a = np.random.default_rng(0), 2.0
    nodes = np.tile(np.linspace(-9, 4, 161), (5_000, 1))
    log_f = a * nodes - np.exp(nodes)
    np.testing.assert_allclose(log_integral(nodes, log_f), 0, atol=1e-3)  # Γ(2) = 1
    assert stats.kstest(np.exp(draw_on_grid(rng, nodes, log_f)), "gamma", args=(a,)).pvalue > 0.01


def test_the_truth_of_a_logistic_regression_with_rare_levels_has_its_score(capsys):
    one = problem("covertype-10000")  # levels of a few rows, and of none
    draws = big_truths.logistic(*one.truth.args, n=1_000)
    assert "ESS share 0.9" in capsys.readouterr().out
    assert _stein(one.target, draws) < 4.5  # the worst of 108
    table, scale, _ = one.truth.args
    with pytest.raises(RuntimeError, match="ESS share"):  # the Gaussian alone will not do
        big_truths.logistic(table, scale, n=1_000)


def test_the_exact_truth_of_group_effects_is_that_of_nuts():
    one = problem("poisson-12")
    exact = big_truths.poisson(*one.truth.args, n=4_000)
    assert _stein(one.target, exact) < 4.2  # the worst of 28
    method = ksivi.NUTS(num_draws=1_500, target_acceptance=0.98)
    chains = np.asarray(ksivi.reference_draws(jax.random.key(0), one.target, method=method))
    error = exact.std(axis=0) * np.sqrt(1 / 4_000 + 1 / 400)  # at least 400 are effective
    assert np.all(np.abs(exact.mean(axis=0) - chains.mean(axis=0)) < 4 * error)
    np.testing.assert_allclose(exact.std(axis=0), chains.std(axis=0), rtol=0.15)


def test_gibbs_sampling_of_the_horseshoe_has_its_score():
    one = problem("horseshoe-12x3")
    draws = big_chains.horseshoe(*one.truth.args, num_chains=10, num_draws=200, thin=10)
    assert _stein(one.target, draws) < 4.2  # the worst of 16


def test_chains_that_disagree_are_no_truth():
    draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    assert big_chains.checked(draws).shape == (2_000, 2)
    draws[0] += 1
    with pytest.raises(RuntimeError, match="R-hat"):
        big_chains.checked(draws)


def test_a_method_in_slices_ends_at_the_limit_with_its_last_draws(tmp_path):
    def slices():
        yield None
        for i in range(1_000):
            yield lambda i=i: np.full((3, 2), i)

    done = big_tasks._in_slices(slices(), big_tasks.Journal(tmp_path, 1.0), float("inf"))
    times = big.read(tmp_path / "times.json")["seconds"]
    assert done == {"status": "done"}
    assert len(times) == 2  # the first ones and the last: little time went by
    assert np.load(tmp_path / "draws-1.npy")[0, 0] == 999
    over = big_tasks._in_slices(slices(), big_tasks.Journal(tmp_path, 5.0), 4.0)
    assert over == {"status": "time limit"}


def _options(tmp_path, **more):
    about = {"truths": tmp_path / "truths", "disk": None, "platform": "cpu", "limit_s": 200.0}
    return Namespace(**about | more)


def test_a_fit_in_a_process_is_timed_weighed_and_judged(tmp_path):
    options = _options(tmp_path)
    name = "logistic-300x3"
    big_tasks.kept_truth(name, options.truths)
    record = big.measured(big.Job(name, "mean-field", 0), options)
    assert record["status"] == "done", record
    assert record["dim"] == 3
    assert 0 < record["seconds"] < 200
    assert 0.05 < record["gib"] < 8
    assert record["path"][-1][0] == record["seconds"]
    assert record["mean"] < 0.2  # the columns are correlated, so that widths may fail
    refused = big.measured(big.Job(name, "HMCECS", 0), options)
    assert refused["status"].startswith("refused: HMCECS needs")
    assert refused["accurate"] is False


def test_a_process_at_its_limit_is_ended_and_its_memory_is_known():
    import subprocess

    code = "import time; x = bytearray(80 * 2**20); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code])
    ended, gib = big._wait(child, 2.0)
    assert ended is None
    assert child.poll() is not None
    assert gib > 0.07
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    assert big._wait(child, 60.0)[0] == 3


def _record(seed=0, method=big.OURS, **more):
    about = {"problem": "poisson-300", "method": method, "seed": seed, "platform": "cpu"}
    about |= {"seconds": 10.0 + seed, "gib": 0.5, "accurate": True, "failures": []}
    return about | more


def test_the_table_has_a_line_for_each_problem_and_method(tmp_path):
    ours = [_record(seed, trusted=seed != 1, accurate_s=10.0 + seed) for seed in range(3)]
    late = _record(method="NUTS", accurate=False, failures=["mean 0.50"], status="time limit")
    path = tmp_path / "big.jsonl"
    for record in (*ours, late, ours[0] | {"seconds": 20.0}):  # the last line of a fit counts
        big.write(path, record)
    first, second = big.table(big.records(path)).splitlines()[1:]
    assert first.split()[2:] == ["ksivi.fit", "12.0", "0.50", "3/3", "11.0", "2/3"]
    assert second.split()[2:6] == ["NUTS", "10.0", "0.50", "0/1"]
    assert second.endswith("mean 0.50; time limit")


def test_a_network_without_its_data_is_skipped_with_a_reason(monkeypatch, tmp_path):
    monkeypatch.delenv("KSIVI_DATA", raising=False)
    options = Namespace(problem="network-yacht", truths=tmp_path, disk=None, place=tmp_path)
    big_tasks.truth(options, 0.0)
    assert "KSIVI_DATA" in big.read(tmp_path / "truth.json")["no_truth"]


def test_minibatches_have_the_size_of_the_targets():
    assert problem("logistic-9000x4").target.density.batch_size == BATCH
