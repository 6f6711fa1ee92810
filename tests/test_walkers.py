"""Chains driven from the host and by one program are the same chains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi._core.hmc import Noise, Place, transition
from ksivi._core.roots import LowRankRoot, diagonal_root
from ksivi.diagnostics import _walkers
from ksivi.diagnostics._walkers import HostWalkers, ProgramWalkers, _in_a_program, walkers_from
from ksivi.targets import Evaluator, OutOfTime

SDS = np.array([0.5, 2.0, 1.0])
MEAN = np.array([3.0, -1.0, 0.0])
KEPT = 3_000


def normal(sds=SDS):
    log_density = lambda x: -0.5 * jnp.sum(((x - MEAN) / sds) ** 2)  # noqa: E731
    return ksivi.Target(log_density, dim=3)


def root():
    rng = np.random.default_rng(1)
    vectors = np.linalg.qr(rng.standard_normal((3, 2)))[0]
    return LowRankRoot(SDS, vectors, np.array([1.3, 0.8]))


def draws(n=KEPT):
    return MEAN + SDS * np.random.default_rng(2).standard_normal((n, 3))


def test_a_transition_is_the_same_in_numpy_and_in_jax():
    rng, at = np.random.default_rng(0), lambda x: Place(x, -(x**4).sum(axis=1), -4 * x**3)
    x = rng.standard_normal((500, 3))
    noise = Noise(rng.standard_normal((500, 3)), rng.uniform(-1.5, 0.3, 500), rng.random(500))
    with np.errstate(all="ignore"):  # some paths diverge
        on_host, rates = transition(at, at(x), noise, 0.3)
    to_jax = lambda tree: jax.tree.map(jnp.asarray, tree)  # noqa: E731
    in_jax, rates_there = transition(at, to_jax(at(x)), to_jax(noise), 0.3, _in_a_program)
    np.testing.assert_allclose(rates_there, rates, atol=1e-3)
    agree = np.all(np.abs(np.asarray(in_jax.x) - on_host.x) < 1e-4, axis=1)
    assert 0.2 < rates.mean() < 1
    assert agree.mean() > 0.99


@pytest.mark.parametrize("kind", [HostWalkers, ProgramWalkers])
def test_draws_of_the_target_stay_draws_of_it(kind):
    before, evaluate = draws(), Evaluator(normal())
    walkers = kind(np.random.default_rng(0), evaluate, before, MEAN, root())
    rates = [walkers.move(0.7) for _ in range(10)]
    x, log_densities = walkers.states()
    se = 1 / np.sqrt(KEPT)
    assert np.abs((x - MEAN).mean(axis=0) / SDS).max() < 4 * se
    assert np.abs((x - MEAN).var(axis=0) / SDS**2 - 1).max() < 4 * np.sqrt(2) * se
    moved = np.mean((x - MEAN) * (before - MEAN) / SDS**2, axis=0)
    assert 0.6 < np.mean(rates) < 1
    assert np.abs(moved).max() < 4 * se
    np.testing.assert_allclose(log_densities, evaluate(x)[0], atol=1e-4)


def test_the_program_finds_widths_from_a_wrong_start():
    before = MEAN + 0.1 * np.random.default_rng(3).standard_normal((KEPT, 3))
    walkers = ProgramWalkers(
        np.random.default_rng(0), Evaluator(normal()), before, MEAN, diagonal_root(SDS)
    )
    for _ in range(30):
        walkers.move(0.7)
    sds = walkers.states()[0].std(axis=0)
    np.testing.assert_allclose(sds, SDS, rtol=4 / np.sqrt(2 * KEPT))


def test_the_program_refuses_points_without_a_density():
    half = ksivi.Target(
        lambda x: jnp.where(x[0] > 0, -0.5 * x[0] ** 2, jnp.nan), dim=1, test_point=jnp.ones(1)
    )
    before = np.abs(np.random.default_rng(0).standard_normal((KEPT, 1)))
    walkers = ProgramWalkers(
        np.random.default_rng(0), Evaluator(half), before, np.zeros(1), diagonal_root(np.ones(1))
    )
    for _ in range(10):
        walkers.move(0.5)
    x = walkers.states()[0]
    assert x.min() > 0
    assert abs(x.mean() - np.sqrt(2 / np.pi)) < 4 * 0.603 / np.sqrt(KEPT)


def test_long_runs_in_many_dimensions_are_one_program(monkeypatch):
    rng, before, evaluate = np.random.default_rng(0), draws(10), Evaluator(normal())
    of = lambda f, num: type(walkers_from(rng, f, before, MEAN, root(), num))  # noqa: E731
    assert of(evaluate, 40) is HostWalkers
    monkeypatch.setattr(_walkers, "_WORTH_A_PROGRAM", 40 * before.size)
    assert of(evaluate, 40) is ProgramWalkers
    assert of(evaluate, 39) is HostWalkers
    assert of(lambda x: evaluate(x), 40) is HostWalkers  # no target to build a program around


def test_functions_outside_jax_are_called_from_the_host(monkeypatch):
    monkeypatch.setattr(_walkers, "_WORTH_A_PROGRAM", 0)
    target = ksivi.from_callback(lambda x: (-0.5 * x @ x, -x), dim=3)
    walkers = walkers_from(np.random.default_rng(0), Evaluator(target), draws(10), MEAN, root(), 40)
    assert isinstance(walkers, HostWalkers)


def test_a_program_evaluates_no_more_points_together_than_the_evaluator(monkeypatch):
    monkeypatch.setattr(_walkers, "_WORTH_A_PROGRAM", 0)
    data = jnp.zeros(20_000)
    many_rows = ksivi.Target.from_data(
        lambda x: -0.5 * jnp.sum(x**2), lambda x, rows: -0.5 * jnp.sum((rows - x[0]) ** 2), data, 3
    )
    rng, evaluate = np.random.default_rng(0), Evaluator(many_rows)
    of = lambda n: type(walkers_from(rng, evaluate, draws(n), MEAN, root(), 40))  # noqa: E731
    assert of(64) is ProgramWalkers
    assert of(65) is HostWalkers


def test_a_density_in_another_precision_is_moved_by_a_program():
    coarse = ksivi.Target(lambda x: -0.5 * jnp.sum(x.astype(jnp.bfloat16) ** 2), dim=3)
    walkers = ProgramWalkers(
        np.random.default_rng(0), Evaluator(coarse), draws(10), MEAN, diagonal_root(SDS)
    )
    walkers.move(0.5)
    assert walkers.place.value.dtype == jnp.result_type(float)


def test_roots_of_few_ranks_share_a_program():
    def shapes(rank):
        vectors = np.linalg.qr(np.random.default_rng(1).standard_normal((40, rank)))[0]
        root, mean = LowRankRoot(np.ones(40), vectors, np.full(rank, 1.3)), np.zeros(40)
        before = np.random.default_rng(2).standard_normal((10, 40))
        target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=40)
        walkers = ProgramWalkers(np.random.default_rng(0), Evaluator(target), before, mean, root)
        padded = walkers.frame[1]
        np.testing.assert_allclose(padded.times(before), root.times(before), atol=1e-5)
        np.testing.assert_allclose(padded.pulled(before), root.pulled(before), atol=1e-5)
        return jax.tree.map(jnp.shape, walkers.frame)

    assert shapes(2) == shapes(32)
    assert shapes(33) != shapes(32)


def test_products_with_the_root_are_precise_on_a_gpu_too():
    walkers = ProgramWalkers(np.random.default_rng(0), Evaluator(normal()), draws(10), MEAN, root())
    move = lambda place: _walkers._move(  # noqa: E731
        walkers.evaluate.target, walkers.frame, place, walkers.key, jnp.asarray(0.5)
    )
    program = str(jax.make_jaxpr(move)(walkers.place))
    assert program.count("dot_general[") >= 4
    assert program.count("dot_general[") == program.count(
        "precision=(Precision.HIGHEST, Precision.HIGHEST)"
    )


def test_a_program_counts_its_evaluations_and_keeps_to_the_deadline():
    evaluate = Evaluator(normal())
    walkers = ProgramWalkers(np.random.default_rng(0), evaluate, draws(10), MEAN, root())
    before, seen = evaluate.count, []
    evaluate.watch = seen.append
    walkers.move(0.5)
    assert evaluate.count == before + 80
    assert seen == [evaluate.count]
    evaluate.deadline = 0.0
    with pytest.raises(OutOfTime):
        walkers.move(0.5)
