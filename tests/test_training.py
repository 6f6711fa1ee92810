import json
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi._core.closures import Structural
from ksivi.training import _step
from small_runs import KEY, MEAN, SD, family, gaussian, same, train


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["vanilla", "u-statistic"])
def test_recovers_a_gaussian(estimator):
    objective = ksivi.KSIVI(estimator=estimator, num_samples=100)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 2_000))
    fit = train(objective=objective, optimizer=optimizer, num_steps=2_000)
    draws = fit.posterior.sample(KEY, 20_000)
    assert np.all(np.abs(draws.mean(0) - MEAN) < 0.1 * SD)
    np.testing.assert_allclose(draws.std(0), SD, rtol=0.1)
    assert str(fit.status) == "step limit: ran all 2,000 steps"
    assert fit.trusted is False
    assert fit.cost.steps == 2_000
    assert fit.cost.score_evals == 2_000 * 100 * (2 if estimator == "vanilla" else 1)
    assert fit.refined is None
    assert "step limit" in str(fit)


def test_history_has_every_step():
    fit = train(num_steps=58)
    assert list(fit.history["step"]) == list(range(58))
    assert fit.history["loss"].shape == fit.history["stein_ratio"].shape == (58,)
    assert np.all(np.isfinite(fit.history["loss"]))


def test_chunk_size_changes_nothing():
    """Chunks of one step, chunks of which the last is shorter, and one chunk of two blocks."""
    fits = [train(num_steps=119, chunk_size=size) for size in (1, 20, 1_000)]
    for fit in fits[1:]:
        assert same(fit.state.params, fits[0].state.params)
        assert np.array_equal(fit.history["loss"], fits[0].history["loss"])


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("size", [1_000, 2**20, 2**24])
def test_a_chunk_has_few_idle_steps(monkeypatch, turn, size):
    """Also where the randomness of two turns of the loop is more than what is drawn ahead."""
    monkeypatch.setattr(_step, "_unroll", lambda: turn)
    for length in (1, 4, 5, 50, 97, 1_000):
        num_blocks, steps = _step.chunk_shape(size, length, 1_000)
        assert length <= num_blocks * steps < 1.1 * length + 2 * turn
        assert steps % turn == 0
        assert steps >= 2 * turn


def test_a_resumed_run_equals_an_unbroken_one():
    unbroken = train(num_steps=98, ema=0.9)
    first = train(num_steps=39, ema=0.9)
    rest = train(num_steps=98, resume=first.state, ema=0.9)
    assert same(rest.state, unbroken.state)
    assert np.array_equal(
        np.concatenate([first.history["loss"], rest.history["loss"]]), unbroken.history["loss"]
    )
    assert rest.cost.steps == 59


def test_resuming_leaves_the_earlier_fit_alone():
    first = train(num_steps=20)
    before = jax.tree.map(np.array, first.state)
    train(num_steps=40, resume=first.state)
    assert same(before, first.state)


def test_progress_changes_nothing():
    pytest.importorskip("rich")
    assert same(train(progress=True).state, train(progress=False).state)


def test_a_batch_of_keys_equals_the_single_runs():
    keys = jax.random.split(KEY, 2)
    fits = train(keys, start=family)
    assert isinstance(fits, list)
    for key, fit in zip(keys, fits, strict=True):
        alone = train(key, start=family)
        np.testing.assert_allclose(fit.history["loss"], alone.history["loss"], rtol=2e-3, atol=1e-4)
    assert not np.allclose(fits[0].history["loss"], fits[1].history["loss"])


def log_likelihood(x, batch):
    return -0.5 * jnp.sum((batch - x[None]) ** 2)


@pytest.mark.slow
def test_lists_and_rates_are_the_single_runs():
    """Data sets, objectives, starts and learning rates of their own, by one program."""
    keys = jax.random.split(KEY, 3)
    rows = [jax.random.normal(k, (30, 2)) + i for i, k in enumerate(keys)]
    targets = [
        ksivi.Target.from_data(gaussian, log_likelihood, data, 2, batch_size=10) for data in rows
    ]
    objectives = [ksivi.KSIVI(num_samples=20, log_density_weight=w) for w in (0.1, 1.0, 10.0)]
    starts = [family(k) for k in keys]
    rates = [1e-3, 1e-2, 3e-2]
    options = {"optimizer": None, "num_steps": 30}
    together = train(keys, targets, starts, objectives, learning_rate=jnp.array(rates), **options)
    for i, fit in enumerate(together):
        alone = train(
            keys[i], targets[i], starts[i], objectives[i], learning_rate=rates[i], **options
        )
        np.testing.assert_allclose(fit.history["loss"], alone.history["loss"], rtol=1e-4)
        np.testing.assert_allclose(
            fit.posterior.sample(KEY, 5), alone.posterior.sample(KEY, 5), rtol=1e-3, atol=1e-4
        )


def test_whitened_targets_of_a_list_draw_in_their_own_coordinates():
    target = ksivi.Target(gaussian, dim=2)
    views = [target.whitened(jnp.zeros(2), jnp.full(2, scale)) for scale in (1.0, 100.0)]
    fits = train(jax.random.split(KEY, 2), views, num_steps=2)
    spreads = [float(fit.posterior.sample(KEY, 500).std()) for fit in fits]
    assert 50 < spreads[1] / spreads[0] < 200


def test_a_new_learning_rate_compiles_nothing():
    traces = []

    def counted(x):
        traces.append(1)
        return gaussian(x)

    target = ksivi.Target(counted, dim=2)
    train(target=target, optimizer=optax.adam, learning_rate=1e-3)
    first = len(traces)
    train(target=target, optimizer=optax.adam, learning_rate=2e-3)
    assert len(traces) == first


def test_a_batch_of_keys_resumes():
    keys = jax.random.split(KEY, 2)
    first = train(keys, num_steps=20)
    rest = train(keys, num_steps=40, resume=[fit.state for fit in first])
    for a, b in zip(rest, train(keys, num_steps=40), strict=True):
        assert same(a.state, b.state)


def test_traces_once_whatever_the_chunks_and_not_again_for_new_data():
    calls = []

    def log_likelihood(x, batch):
        calls.append(None)
        return -0.5 * jnp.sum((batch - x[None]) ** 2)

    def run(seed, **options):
        data = jax.random.normal(jax.random.key(seed), (30, 2))
        target = ksivi.Target.from_data(gaussian, log_likelihood, data, dim=2)
        # Everything is made anew, as a loop over data sets would.
        return train(
            target=target, start=family(), objective=ksivi.KSIVI(num_samples=20), **options
        )

    run(0, num_steps=20)
    once = len(calls)
    run(1, num_steps=20)
    assert len(calls) == once
    run(1, num_steps=200)
    assert len(calls) == once, "more chunks of the same shape traced again"
    run(1, num_steps=10 * 13, chunk_size=10)
    assert len(calls) <= 2 * once


def test_optimisers_are_compared_by_what_they_compute():
    make = lambda rate: optax.chain(  # noqa: E731
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.exponential_decay(rate, 1_000, 0.9, staircase=True)),
    )
    assert Structural(make(1e-3)) == Structural(make(1e-3))
    assert hash(Structural(make(1e-3))) == hash(Structural(make(1e-3)))
    assert Structural(make(1e-3)) != Structural(make(1e-4))
    assert Structural(optax.adam(1e-3)) != Structural(optax.sgd(1e-3))
    table = jnp.array([1e-2, 1e-3])
    schedule = lambda table: lambda step: table[step // 10]  # noqa: E731
    assert Structural(optax.sgd(schedule(table))) != Structural(optax.sgd(schedule(table))), (
        "a user's may read globals"
    )
    same_schedule = schedule(table)
    assert Structural(optax.sgd(same_schedule)) == Structural(optax.sgd(same_schedule))


def test_the_average_is_what_the_posterior_uses():
    average, state = jax.tree.map(np.asarray, family().conditional.mean.weights), None
    for step in range(1, 21):
        state = train(num_steps=step, resume=state).state
        average = jax.tree.map(
            lambda a, p: 0.9 * a + 0.1 * np.asarray(p),
            average,
            state.params.conditional.mean.weights,
        )
    ours = train(num_steps=20, ema=0.9).posterior.family.conditional.mean.weights
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, average)


def test_a_learning_rate_for_each_group():
    frozen_scale = optax.partition(
        {"mean": optax.adam(1e-2), "scale": optax.set_to_zero()}, ksivi.families.groups
    )
    fit = train(optimizer=frozen_scale)
    assert np.array_equal(
        fit.posterior.family.conditional.log_var.value, family().conditional.log_var.value
    )
    assert not same(fit.posterior.family.conditional.mean, family().conditional.mean)


def test_whitened_targets_draw_in_the_original_coordinates():
    target = ksivi.Target(gaussian, dim=2).whitened(MEAN, jnp.diag(SD))
    start = ksivi.SemiImplicit.location_scale(2)
    fit = train(target=target, start=start, optimizer=optax.sgd(0.0), num_steps=5, chunk_size=5)
    draws = fit.posterior.sample(KEY, 20_000)
    assert np.all(np.abs(draws.mean(0) - MEAN) < 4 * SD / np.sqrt(20_000))
    np.testing.assert_allclose(draws.std(0), SD, rtol=0.03)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"ema": 0.9}, "ema"),
        ({"optimizer": optax.sgd(0.1)}, "optimizer"),
        ({"start": ksivi.SemiImplicit.location_scale(2)}, "family"),
    ],
)
def test_a_state_of_another_run_is_not_resumed(options, argument):
    message = (
        f"resume must come from a run with the same arguments, but its {argument} does not match"
    )
    with pytest.raises(ValueError, match=message):
        train(resume=train(num_steps=20).state, **options)


class Shifted(eqx.Module):
    loc: jax.Array

    def __call__(self, key):
        return self.loc + jax.random.normal(key, (3,))


def test_a_mixing_distribution_and_the_floor_are_not_trained():
    """Not even by an optimiser that shrinks whatever it is given."""
    start = ksivi.SemiImplicit.mlp(
        KEY, dim=2, mixing_dim=3, hidden=(8,), mixing=Shifted(jnp.ones(3))
    )
    trained = train(start=start, optimizer=optax.adamw(1e-2, weight_decay=0.5)).posterior.family
    assert np.array_equal(trained.mixing.sampler.loc, jnp.ones(3))
    assert trained.conditional.min_log_var.value == -20.0
    assert not same(trained.conditional.mean, start.conditional.mean)


def test_an_unfinished_anneal_is_mentioned():
    target, start = (
        ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2),
        ksivi.SemiImplicit.location_scale(2),
    )
    objective = ksivi.KSIVI(num_samples=20, annealing=ksivi.Annealing(start=0.1, horizon=1e6))
    fit = train(target=target, start=start, objective=objective)
    assert (
        str(fit.status) == "step limit: ran all 60 steps, with the target still annealed at β = 0.1"
    )
    done = ksivi.KSIVI(num_samples=20, annealing=ksivi.Annealing(start=0.1, horizon=10))
    assert (
        str(train(target=target, start=start, objective=done).status)
        == "step limit: ran all 60 steps"
    )


def test_callbacks_see_the_run_and_may_end_it():
    seen = []

    def callback(chunk):
        seen.append(chunk)
        assert chunk.posteriors()[0].sample(KEY, 3).shape == (3, 2)
        return np.bool_(chunk.step >= 40)

    fit = train(num_steps=100, callbacks=[callback])
    assert [chunk.step for chunk in seen] == [20, 40]
    assert str(fit.status) == "interrupted: stopped by a callback after 40 of 100 steps"
    np.testing.assert_allclose(seen[1].loss, fit.history["loss"][20:40].mean(), rtol=1e-5)


def test_score_only_targets_train_but_refuse_values():
    target = ksivi.Target.from_score(lambda x: -(x - MEAN) / SD**2, dim=2)
    np.testing.assert_allclose(
        train(target=target).history["loss"], train().history["loss"], rtol=1e-4, atol=1e-6
    )
    with pytest.raises(ValueError, match="only a score"):
        train(target=target, objective=ksivi.KSIVI(num_samples=20, log_density_weight=0.1))


@pytest.mark.slow
def test_several_noise_draws_and_sigma_of_z_train():
    start = ksivi.SemiImplicit.mlp(
        KEY, dim=2, mixing_dim=2, hidden=(8,), scale="network", log_var=-1.0
    )
    objective = ksivi.KSIVI(estimator="u-statistic", num_samples=20, noise_per_z=4)
    fit = train(start=start, objective=objective)
    assert np.all(np.isfinite(fit.history["loss"]))


def test_float64_end_to_end(x64):
    fit = train(num_steps=20)
    assert fit.history["loss"].dtype == np.float64
    assert fit.posterior.sample(KEY, 3).dtype == jnp.float64


def test_no_warning_is_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(num_steps=20)


def test_logs_have_a_line_or_an_event_a_chunk(tmp_path):
    pytest.importorskip("tensorboardX")
    logs = [ksivi.JSONLines(tmp_path / "new" / "log.jsonl"), ksivi.TensorBoard(tmp_path / "events")]
    fit = train(num_steps=60, chunk_size=20, callbacks=logs)
    lines = [json.loads(line) for line in (tmp_path / "new" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [20, 40, 60]
    np.testing.assert_allclose(lines[-1]["loss"], np.mean(fit.history["loss"][40:]), rtol=1e-5)
    logs[1].close()
    events = next((tmp_path / "events").iterdir()).read_bytes()
    assert events.count(b"steps_per_second") == 3
    with pytest.raises(ValueError, match="path must name a file that can be written"):
        ksivi.JSONLines("/dev/null/log.jsonl")
