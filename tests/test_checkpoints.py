"""Checkpoints: the same run to the bit, whatever happens in between."""

import errno
import functools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest

import killed
import ksivi
from damage import damaged
from ksivi.training import _checkpoints as checkpoints

short = functools.partial(killed.run, num_steps=300)


@functools.cache
def unbroken():
    return killed.digest(short())


def until(step):
    return [lambda chunk: chunk.step >= step]


@pytest.mark.parametrize("stop", [50, 120, 300])
def test_a_resumed_run_is_the_unbroken_one(stop, tmp_path):
    first = short(tmp_path, callbacks=until(stop))
    assert first.cost.steps >= stop
    assert killed.digest(short(tmp_path)) == unbroken()


def test_chunks_progress_and_checkpoints_change_no_bit(tmp_path):
    assert killed.digest(short(chunk_size=300)) == unbroken()
    assert killed.digest(short(progress=True)) == unbroken()
    assert killed.digest(short(tmp_path, every=7)) == unbroken()


OBJECTIVES = {
    "sivi-sm": lambda: ksivi.SIVISM(8, (8,), critic_optimizer=optax.adam(1e-3)),
    "uivi": lambda: ksivi.UIVI(8),
    "pvi": lambda: ksivi.objectives.PVI(8),
    "aisivi": lambda: ksivi.objectives.AISIVI(8, 4, 2, (4,)),
    "sivi": lambda: ksivi.SIVI(8, num_mixing=5),
    "kpg-is": lambda: ksivi.objectives.KPGIS(8, 2, proposal_hidden=(8,)),
    "denoised-score": lambda: ksivi.objectives.DenoisedScore(8, (8,), network_samples=8),
}


def test_troubles_in_chunks_of_another_size_are_found_at_the_same_steps(tmp_path):
    """One run of two walks off a cliff after it was resumed in shorter chunks; the other goes on undisturbed."""
    log_density = lambda x: jnp.sum(x) - 0.005 * jnp.sum(x**2) + 1e-3 * jnp.sqrt(60.0 - jnp.max(x))  # noqa: E731
    rates, target = jnp.array([0.3, 1e-3]), ksivi.Target(log_density, dim=2)
    family = ksivi.SemiImplicit.location_scale(2)
    run = lambda **options: ksivi.train(  # noqa: E731
        jax.random.split(jax.random.key(1), 2),
        target,
        family,
        ksivi.KSIVI(num_samples=8),
        num_steps=400,
        optimizer=optax.adam,
        learning_rate=rates,
        **options,
    )
    whole = run(chunk_size=100)
    assert [fit.status.kind for fit in whole] == ["diverged", "step limit"]
    assert 100 < whole[0].diagnostics.not_finite.step < 400
    run(chunk_size=100, checkpoint=tmp_path, every=100, callbacks=until(100))
    resumed = run(chunk_size=30, checkpoint=tmp_path)
    assert [killed.digest(fit) for fit in resumed] == [killed.digest(fit) for fit in whole]
    assert resumed[0].diagnostics.not_finite == whole[0].diagnostics.not_finite


@pytest.mark.parametrize(
    "name",
    [
        "sivi-sm",
        "uivi",
        "pvi",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("sivi", "kpg-is", "denoised-score", "aisivi")
        ),
    ],
)
def test_every_state_is_kept(name, tmp_path):
    """Critics, averages, and runs of a batch of keys with rates of their own."""
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    options = {
        "optimizer": optax.adam,
        "learning_rate": jnp.array([1e-3, 1e-2]),
        "ema": 0.9,
        "chunk_size": 20,
    }
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3, hidden=(8,))
    run = lambda **more: ksivi.train(  # noqa: E731
        jax.random.split(jax.random.key(1), 2),
        target,
        family,
        OBJECTIVES[name](),
        num_steps=60,
        **options,
        **more,
    )
    run(checkpoint=tmp_path, every=20, callbacks=until(40))
    assert [killed.digest(fit) for fit in run(checkpoint=tmp_path)] == [
        killed.digest(fit) for fit in run()
    ]


def test_the_last_few_are_kept(tmp_path):
    short(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [
        f"step-{step:012}.safetensors" for step in (200, 250, 300)
    ]


def newest(folder):
    return max(Path(folder).glob("step-*"))


def damage(path, seed):
    path.write_bytes(damaged(path.read_bytes(), seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(seed, tmp_path):
    short(tmp_path, callbacks=until(200))
    damage(newest(tmp_path), seed)
    with pytest.warns(RuntimeWarning, match="skipped a damaged checkpoint"):
        assert killed.digest(short(tmp_path)) == unbroken()


def test_a_folder_of_damaged_checkpoints_is_refused(tmp_path):
    short(tmp_path, callbacks=until(100))
    for seed, path in enumerate(tmp_path.glob("step-*")):
        damage(path, seed)
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match="only damaged snapshots"):
        short(tmp_path)


def checked(folder, key=None, log_var=0.0, scale=1.0, objective=None, **options):
    """A run of some steps that keeps to the folder of another, if it is the same."""
    log_likelihood = lambda x, rows: -jnp.sum((rows - x[None]) ** 2)  # noqa: E731
    target = ksivi.Target.from_data(
        lambda x: -jnp.sum(x**2), log_likelihood, scale * jnp.ones((5, 2)), dim=2
    )
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), 2, 3, (8,), log_var=log_var)
    options = {"optimizer": optax.adam(1e-3), "num_steps": 4, "checkpoint": folder} | options
    key, objective = (
        jax.random.key(1) if key is None else key,
        objective or ksivi.KSIVI(num_samples=8),
    )
    ksivi.train(key, target, family, objective, **options)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("done")
    checked(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("key", {"key": jax.random.key(2)}),
        ("family", {"log_var": -1.0}),
        ("target", {"scale": 2.0}),
        ("objective", {"objective": ksivi.KSIVI(num_samples=9)}),
        ("objective", {"objective": ksivi.KSIVI(ksivi.kernels.IMQ(), num_samples=8)}),
        ("optimizer", {"optimizer": optax.adam(1e-4)}),
        ("nonfinite", {"nonfinite": "skip"}),
    ],
)
def test_the_folder_of_another_run_is_refused(name, change, done):
    with pytest.raises(
        ValueError, match=f"checkpoint folder belongs to a different run: the {name} does not match"
    ):
        checked(done, **change)


def test_a_full_disk_costs_a_warning(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    with pytest.warns(RuntimeWarning, match="could not be written .* No space left"):
        assert killed.digest(short(tmp_path)) == unbroken()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": 3}, "checkpoint must name a folder, got 3"),
        ({"checkpoint": __file__}, "checkpoint must name a folder"),
        ({"every": 10}, "every needs a checkpoint folder"),
        ({"checkpoint": "unused", "every": 0}, "every must be"),
    ],
)
def test_bad_arguments_are_named(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        short(**options)


def start(folder, *words):
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "cache"),
    }
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    command = [sys.executable, Path(__file__).parent / "killed.py", *(words or [folder])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def wait_for_checkpoints(folder, process):
    while not list(folder.glob("step-*")):
        assert process.poll() is None
        time.sleep(0.01)


def test_sigterm_leaves_a_checkpoint_and_says_so(tmp_path):
    folder = tmp_path / "run"
    with start(folder) as process:
        wait_for_checkpoints(folder, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert int(newest(folder).stem.removeprefix("step-")) < 6_000
    assert killed.digest(killed.run(folder)) == killed.digest(killed.run())


def test_one_seed_is_one_answer_in_every_process(tmp_path):
    """Whatever the chunks, and with a progress bar or without."""
    with (
        start(tmp_path, "num_steps=300", "chunk_size=50") as first,
        start(tmp_path, "num_steps=300", "chunk_size=170", "progress=True") as second,
    ):
        assert first.stdout.readline() == second.stdout.readline() == f"{unbroken()}\n"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["train", "run"])
def test_runs_killed_at_random_moments_end_alike(tmp_path, what):
    """As many as KSIVI_KILLS says, each killed once: while it compiles, steps or writes."""
    rng, expected = random.Random(0), killed.digest(killed.RUNS[what]())
    for i in range(int(os.environ.get("KSIVI_KILLS", "5"))):
        folder = tmp_path / str(i)
        with start(folder, str(folder), f"what={what!r}") as process:
            if rng.random() < 0.8:
                wait_for_checkpoints(folder, process)
            time.sleep(rng.uniform(0, 1.5))
            process.kill()
        with start(folder, str(folder), f"what={what!r}") as resumed:
            assert resumed.stdout.readline().strip() == expected
