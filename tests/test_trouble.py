"""Runs that go wrong or are stopped: what is noticed, what is kept, what is said."""

import functools
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi.training import Host, fits_of, new_training
from small_runs import KEY, family, same, train


def cliff(x):
    """Pulls to the right, where its score turns to NaN."""
    return 10.0 * jnp.sum(x) - 0.005 * jnp.sum(x**2) + 1e-3 * jnp.sqrt(8.0 - jnp.max(x))


def kinked_score(x):
    """Pulls to the right, where it stays finite but its derivative is NaN: the slope of √ at 0 times 0."""
    return 10.0 - 0.01 * x + jnp.sqrt(jnp.maximum(8.0 - x, 0.0))


FALLING = {"optimizer": optax.adam, "learning_rate": 0.1, "num_steps": 1_000, "chunk_size": 5}
"""Off the cliff, in short chunks: a run of any number of steps is made of the same ones, and compiles nothing."""


@pytest.mark.parametrize(
    ("fault", "batched"),
    [
        ("loss", False),
        ("gradient", True),
        pytest.param("loss", True, marks=pytest.mark.slow),
        pytest.param("gradient", False, marks=pytest.mark.slow),
    ],
)
def test_nan_stops_the_run_and_keeps_the_last_good_parameters(batched, fault):
    target = (
        ksivi.Target(cliff, dim=2)
        if fault == "loss"
        else ksivi.Target.from_score(kinked_score, dim=2)
    )
    keys = jax.random.split(KEY, 2) if batched else KEY
    fits = train(keys, target=target, **FALLING)
    for fit in fits if batched else [fits]:
        assert str(fit.status).startswith("diverged: the loss became nan at step ")
        last = int(fit.history["step"][-1])
        assert str(fit.status).startswith(f"diverged: the loss became nan at step {last + 1:,}")
        assert all(np.isfinite(values).all() for values in fit.history.values())
        assert fit.state.step == last
        assert jnp.all(jnp.isfinite(fit.posterior.sample(KEY, 100)))
        assert fit.trusted is False
    if not batched:
        good = train(target=target, **{**FALLING, "num_steps": int(fits.state.step)})
        assert same(good.state.params, fits.state.params)


def test_what_was_not_finite_is_said():
    """The score, by its coordinates; and a gradient where the score is fine, by its parameters."""
    lonely = lambda x: 10.0 * x[1] - 0.005 * jnp.sum(x**2) + 1e-3 * jnp.sqrt(8.0 - x[1])  # noqa: E731
    options = {
        "target": ksivi.Target(lonely, dim=3),
        "optimizer": optax.adam(0.1),
        "num_steps": 500,
    }
    fits = train(jax.random.split(KEY, 2), start=family(dim=3), **options)
    for fit in fits:
        seen = fit.diagnostics.not_finite
        assert (seen.quantity, seen.coordinates) == ("score", (1,))
        assert seen.step == int(fit.state.step) + 1
        assert 0 < seen.share < 0.5
        assert "the score in 1 at" in str(seen)
        assert "the score in 1 at" in str(fit)
    fit = train(target=ksivi.Target.from_score(kinked_score, dim=2), **FALLING)
    seen = fit.diagnostics.not_finite
    assert (seen.quantity, seen.step) == ("gradient", int(fit.state.step))
    assert any("mean" in name for name in seen.coordinates)


def test_the_very_draws_of_a_step_are_looked_at():
    """One draw in 40,000 has no score: others than those of the step would show nothing."""
    start, objective = ksivi.SemiImplicit.location_scale(2), ksivi.SIVI(128, 1)
    fit = train(target=rarely_finite(4.2), start=start, objective=objective, num_steps=5_000)
    seen = fit.diagnostics.not_finite
    assert seen.quantity == "gradient"
    assert any("mean" in name for name in seen.coordinates)


def test_steps_that_are_not_finite_can_be_skipped_and_are_counted():
    start, objective = ksivi.SemiImplicit.location_scale(2), ksivi.SIVI(32, 1)
    run = lambda nonfinite: train(  # noqa: E731
        target=rarely_finite(3.7),
        start=start,
        objective=objective,
        num_steps=400,
        nonfinite=nonfinite,
        chunk_size=100,
    )
    fit = run("skip")
    assert fit.status.kind == "step limit"
    assert fit.diagnostics.skipped_steps == np.sum(np.isnan(fit.history["loss"])) > 0
    assert run("stop").status.kind == "diverged"
    with pytest.raises(ValueError, match="nonfinite must be"):
        run("ignore")


def test_a_gradient_that_fails_in_the_last_step_is_noticed():
    target = ksivi.Target.from_score(kinked_score, dim=2)
    last = int(train(target=target, **FALLING).state.step)
    fit = train(target=target, **{**FALLING, "num_steps": last + 1})
    assert str(fit.status).startswith(
        f"diverged: a gradient became NaN or infinite at step {last:,}"
    )
    assert fit.state.step == last


def test_one_diverging_run_leaves_the_others_alone():
    far_or_near = lambda key: jnp.where(jax.random.bernoulli(key), 0.0, -500.0)  # noqa: E731
    start = lambda key: ksivi.SemiImplicit.location_scale(2, loc=far_or_near(key))  # noqa: E731
    fits = train(
        jax.random.split(KEY, 4),
        target=ksivi.Target(cliff, dim=2),
        start=start,
        optimizer=optax.adam(0.1),
        num_steps=300,
    )
    assert {fit.status.kind for fit in fits} == {"diverged", "step limit"}
    for fit in fits:
        assert (len(fit.history["loss"]) == 300) == (fit.status.kind == "step limit")
        assert jnp.all(jnp.isfinite(fit.posterior.sample(KEY, 10)))


@pytest.mark.parametrize("chunk_size", [100, 2_000])
def test_runaway_draws_are_noticed(chunk_size):
    """An optimiser that widens σ in every step, in many chunks and within one."""
    log_density = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
    objective = ksivi.KSIVI(ksivi.kernels.Gaussian(ksivi.kernels.Fixed(1e-4)), num_samples=20)
    target = ksivi.Target(log_density, dim=20)
    start = ksivi.SemiImplicit.location_scale(20)
    fit = train(
        target=target,
        start=start,
        objective=objective,
        optimizer=_Outwards(),
        num_steps=2_000,
        chunk_size=chunk_size,
    )
    assert str(fit.status).startswith("diverged: the draws ran away")
    assert fit.posterior.sample(KEY, 1_000).std() < 200


def _Outwards():
    """An optimiser that only ever widens σ."""

    def update(grads, state, params=None):
        return (
            jax.tree.map(lambda g: jnp.full_like(g, 0.01), grads),
            state,
        )

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def test_a_runaway_is_noticed_after_resuming():
    target, start = (
        ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2),
        ksivi.SemiImplicit.location_scale(2),
    )
    options = {"target": target, "start": start, "optimizer": _Outwards()}
    first = train(num_steps=800, **options)
    assert first.status.kind == "step limit"
    assert train(num_steps=1_300, resume=first.state, **options).status.kind == "diverged"


def test_the_parameters_of_a_bad_loss_are_not_kept():
    """One step too far, and the draws overflow: the parameters before it are kept."""
    start = ksivi.SemiImplicit.location_scale(2)
    fit = train(
        target=ksivi.Target(lambda x: -jnp.sum(x**4), dim=2), start=start, optimizer=optax.sgd(1e12)
    )
    assert fit.status.kind == "diverged"
    assert jnp.all(jnp.isfinite(fit.posterior.sample(KEY, 100)))
    assert np.isfinite(fit.history["loss"][int(fit.state.step)])


@pytest.mark.slow
def test_a_fault_in_the_first_step_of_a_chunk_goes_back_to_the_chunk_before():
    target, optimizer = ksivi.Target(cliff, dim=2), optax.adam(0.1)
    bad = 1 + int(train(target=target, optimizer=optimizer, num_steps=1_000).history["step"][-1])
    fit = train(target=target, optimizer=optimizer, num_steps=4 * bad, chunk_size=bad)
    assert fit.history["step"][-1] == bad - 1
    assert fit.state.step == bad - 1
    good = train(target=target, optimizer=optimizer, num_steps=bad - 1)
    assert same(fit.state.params, good.state.params)


def test_throw_raises():
    target = ksivi.Target(cliff, dim=2)
    words = r"diverged: the loss became nan.*\. Do not use these draws\. Look for overflow"
    with pytest.raises(RuntimeError, match=words):
        train(target=target, **FALLING, throw=True)


def test_ctrl_c_before_the_first_chunk_ends(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("ksivi.training._training.run_one", interrupt)
    fit = train(num_steps=100)
    assert str(fit.status) == "interrupted: stopped by the user after 0 of 100 steps"
    assert fit.history["loss"].shape == (0,)
    assert same(fit.posterior.family, family())


def test_ctrl_c_keeps_what_there_is():
    def interrupt(chunk):
        if chunk.step >= 40:
            raise KeyboardInterrupt

    fit = train(num_steps=100, chunk_size=20, callbacks=[interrupt])
    assert str(fit.status) == "interrupted: stopped by the user after 40 of 100 steps"
    assert same(fit.state, train(num_steps=40, chunk_size=20).state)


@pytest.mark.parametrize(
    ("ending", "batched"), [("step limit", False), ("interrupted", True), ("diverged", True)]
)
def test_a_device_that_runs_ahead_makes_the_same_run(monkeypatch, ending, batched):
    """As on a GPU: the next chunk has begun when the last is found to be bad, or the callback says stop."""
    keys = jax.random.split(KEY, 2) if batched else KEY
    target = ksivi.Target(cliff, dim=2)
    options = (
        FALLING if ending == "diverged" else {**FALLING, "learning_rate": 1e-4, "num_steps": 90}
    )

    def run():
        steps = []

        def stop(chunk):
            return steps.append(chunk.step) or (ending == "interrupted" and chunk.step >= 40)

        fits = train(keys, target=target, callbacks=[stop], **options)
        return steps, fits if batched else [fits]

    steps, fits = run()
    monkeypatch.setattr("ksivi.training._training.Training.runs_ahead", True)
    steps_ahead, fits_ahead = run()
    assert steps == steps_ahead
    for fit, ahead in zip(fits, fits_ahead, strict=True):
        assert fit.status == ahead.status
        assert fit.status.kind == ending
        assert same((fit.state, fit.history), (ahead.state, ahead.history))


def test_the_speed_is_of_one_chunk_where_the_next_has_begun(monkeypatch):
    """By a clock that ticks when it is read: chunks that come one after another take no longer than all of them."""
    clock = types.SimpleNamespace(perf_counter=functools.partial(next, itertools.count(0.0)))
    for module in ("_host", "_task"):
        monkeypatch.setattr(f"ksivi.training.{module}.time", clock)
    monkeypatch.setattr("ksivi.training._training.Training.runs_ahead", True)
    chunks = []
    train(callbacks=[chunks.append], num_steps=200, chunk_size=20)
    assert len(chunks) == 10
    assert sum(20 / chunk.steps_per_second for chunk in chunks) <= chunks[-1].seconds


def rarely_finite(limit):
    """A standard normal whose density is NaN beyond so many standard deviations to the right."""
    log_density, limits = lambda x, limits: 0.0 * jnp.sum(jnp.sqrt(limits - x)), jnp.full(2, limit)
    # As data, so that every limit runs the same program.
    return ksivi.Target.from_data(lambda x: -0.5 * jnp.sum(x**2), log_density, limits, dim=2)


def skipping_run(limit):
    parts = (
        KEY,
        rarely_finite(limit),
        ksivi.SemiImplicit.location_scale(2),
        ksivi.SIVI(32, 1),
        optax.adam(1e-2),
    )
    training, start = new_training(*parts, None, skip_nonfinite=True)
    return fits_of(training, Host(training).until(start, 400, 100))[0]


def test_rare_steps_that_are_not_finite_can_be_skipped():
    fit = skipping_run(3.7)  # 32 draws of two coordinates: one in 150 batches is beyond
    left_out = np.isnan(fit.history["loss"])
    assert 0 < left_out.sum() < 20
    assert fit.status.kind == "step limit"
    draws = fit.posterior.sample(KEY, 4_000)
    np.testing.assert_allclose(np.std(draws, axis=0), 1, atol=0.1)


@pytest.mark.parametrize("limit", [2.3, 0.01])
def test_skipping_does_not_hide_a_bad_start(limit):
    fit = skipping_run(limit)  # one draw in fifty is beyond, or one in two
    assert fit.status.kind == "diverged"
    assert fit.cost.steps == 0 or np.isnan(fit.history["loss"]).any()


def test_skipping_ends_where_many_steps_are_not_finite():
    fit = skipping_run(2.9)  # one in eight batches
    assert fit.status.kind == "diverged"
    assert "not finite in" in str(fit.status)
    assert jnp.all(jnp.isfinite(fit.posterior.sample(KEY, 100)))
