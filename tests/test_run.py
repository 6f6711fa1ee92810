"""What `run` shares with `train`: checkpoints, SIGTERM, batches of keys, and the host loop under both."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import killed
import ksivi
from test_checkpoints import newest, start, until, wait_for_checkpoints

pytest.importorskip("blackjax")

KEYS = jax.random.split(jax.random.key(3), 2)
METHODS = {
    "svgd": lambda steps=40: ksivi.SVGD(8, steps),
    "sgld": lambda draws=20: ksivi.SGLD(num_chains=4, num_warmup=20, num_draws=draws, thin=2),
    "nuts": lambda draws=20: ksivi.NUTS(num_chains=2, num_warmup=20, num_draws=draws),
}


def target():
    return ksivi.Target(killed.log_density, dim=3)


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_of_keys_equals_the_single_runs(name):
    method = METHODS[name]()
    batch = ksivi.run(KEYS, target(), method, chunk_size=15)
    assert len(batch) == 2
    for key, fit in zip(KEYS, batch, strict=True):
        alone = ksivi.run(key, target(), method, chunk_size=15)
        assert killed.digest(fit) == killed.digest(alone)
        assert fit.status == alone.status
        assert repr(fit.diagnostics) == repr(alone.diagnostics)
        np.testing.assert_array_equal(fit.posterior.family.points, alone.posterior.family.points)


def test_a_run_in_trouble_leaves_the_others_of_its_batch_alone():
    """Chains walk over an edge where the density ends: some early, some never."""
    edge = ksivi.Target(lambda x: -0.5 * x[0] ** 2 + 1e-3 * jnp.sqrt(2.0 - x[0]), dim=1)
    method = ksivi.SGLD(step_size=0.1, num_chains=2, num_warmup=10, num_draws=40, thin=2)
    keys = jax.random.split(jax.random.key(0), 4)
    fits = ksivi.run(keys, edge, method, chunk_size=15)
    assert {fit.status.kind for fit in fits} == {"diverged", "not trusted"}
    for key, fit in zip(keys, fits, strict=True):
        alone = ksivi.run(key, edge, method, chunk_size=15)
        assert fit.status == alone.status
        assert killed.digest(fit) == killed.digest(alone)
        assert all(np.isfinite(values).all() for values in fit.history.values())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("key", [KEYS[0], KEYS], ids=["one key", "two keys"])
def test_a_run_from_a_checkpoint_is_the_unbroken_one(name, key, tmp_path):
    run = lambda **options: ksivi.run(key, target(), METHODS[name](), chunk_size=10, **options)  # noqa: E731
    broken = run(checkpoint=tmp_path, every=10, callbacks=until(30))  # ten draws into the sampling
    assert "interrupted" in str(broken[0].status if isinstance(broken, list) else broken.status)
    resumed, whole = run(checkpoint=tmp_path), run()
    pairs = zip(resumed, whole, strict=True) if isinstance(whole, list) else [(resumed, whole)]
    for one, other in pairs:
        assert killed.digest(one) == killed.digest(other)
        assert repr(one.diagnostics) == repr(other.diagnostics)


def test_finished_runs_are_read_from_their_checkpoint(tmp_path):
    first = ksivi.run(KEYS, target(), METHODS["sgld"](), checkpoint=tmp_path)
    steps = []
    again = ksivi.run(
        KEYS, target(), METHODS["sgld"](), checkpoint=tmp_path, callbacks=[steps.append]
    )
    assert not steps
    for one, other in zip(first, again, strict=True):
        assert killed.digest(one) == killed.digest(other)


def test_checkpoints_of_another_version_are_named_as_such(tmp_path, monkeypatch):
    monkeypatch.setattr("ksivi.training._checkpoints._FORMAT", 1)
    ksivi.run(KEYS[0], target(), METHODS["svgd"](), checkpoint=tmp_path)
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match="checkpoint folder was written by another version of ksivi"
    ):
        ksivi.run(KEYS[0], target(), METHODS["svgd"](), checkpoint=tmp_path)


def test_chunks_that_a_callback_keeps_are_light():
    """They hold the state and the draws so far, not all that was recorded."""
    chunks = []
    ksivi.run(KEYS[0], target(), METHODS["svgd"](), chunk_size=5, callbacks=[chunks.append])
    held = [cell.cell_contents for cell in chunks[-1].posteriors.__closure__]
    (progress,) = [one for one in held if hasattr(one, "records")]
    assert progress.records == ()
    assert progress.earlier is None
    assert chunks[0].posteriors()[0].sample(KEYS[0], 3).shape == (3, 3)


@pytest.mark.parametrize("other", ["target", "method", "key"])
def test_the_checkpoints_of_a_different_run_are_refused(other, tmp_path):
    ksivi.run(KEYS[0], target(), METHODS["svgd"](), checkpoint=tmp_path)
    moved = ksivi.Target(lambda x: -jnp.sum(x**2), dim=3)
    key = KEYS[1] if other == "key" else KEYS[0]
    method = METHODS["sgld"]() if other == "method" else METHODS["svgd"]()
    with pytest.raises(ValueError, match=f"checkpoint.*{other}"):
        ksivi.run(key, moved if other == "target" else target(), method, checkpoint=tmp_path)


def test_a_resumed_batch_equals_the_longer_one():
    states = [fit.state for fit in ksivi.run(KEYS, target(), METHODS["sgld"](10))]
    resumed = ksivi.run(KEYS, target(), METHODS["sgld"](20), resume=states)
    for one, other in zip(resumed, ksivi.run(KEYS, target(), METHODS["sgld"](20)), strict=True):
        np.testing.assert_array_equal(one.posterior.family.points, other.posterior.family.points)
    with pytest.raises(ValueError, match="resume must be a list with one state per key"):
        ksivi.run(KEYS, target(), METHODS["sgld"](20), resume=states[0])


def test_sigterm_leaves_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    with start(folder, str(folder), "what='run'") as process:
        wait_for_checkpoints(folder, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert int(newest(folder).stem.removeprefix("step-")) < 6_000
    assert killed.digest(killed.run_method(folder)) == killed.digest(killed.run_method())
