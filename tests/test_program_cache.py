"""Programs kept on disk: the same results, in every thread and process; and nothing of the user's is touched."""

import json
import os
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compilation_cache

import kept_programs
from kept_programs import X, added, entries, num_loaded
from ksivi._core import programs
from ksivi._core.compile import jit, on_cores
from ksivi._core.programs import program_cache
from test_compile import _TWO_BATCHES

folder = kept_programs.folder  # the fixture


def test_a_program_is_loaded_and_gives_the_same(folder):
    first, before = added(1.0), num_loaded(folder)
    kept = entries(folder)
    assert np.array_equal(added(1.0), first)
    assert num_loaded(folder) == before + 1
    assert entries(folder) == kept


def test_jax_is_as_before(folder):
    settings = dict(jax.config.values)
    added(1.0)
    assert dict(jax.config.values) == settings
    assert compilation_cache._cache is None
    assert not compilation_cache._cache_initialized
    kept = entries(folder)
    np.asarray(jax.jit(lambda x: x + 17.0)(X))
    assert entries(folder) == kept


def test_the_users_cache_is_left_alone(folder):
    theirs = folder / "theirs"
    jax.config.update("jax_compilation_cache_dir", str(theirs))
    added(1.0)
    assert theirs.exists()
    assert not (folder / "programs").exists()


def test_it_can_be_switched_off(folder, monkeypatch):
    with program_cache(False):
        added(1.0)
        with program_cache():
            added(2.0)
    with monkeypatch.context() as patch:
        patch.setenv("KSIVI_PROGRAM_CACHE", "0")
        added(3.0)
    jax.config.update("jax_enable_compilation_cache", False)
    added(4.0)
    jax.config.update("jax_enable_compilation_cache", True)
    assert not (folder / "programs").exists()
    added(5.0)
    assert entries(folder)


def test_in_a_block_everything_is_kept_but_not_what_other_threads_compile(folder):
    user = lambda constant: np.asarray(jax.jit(lambda x: x * constant)(X))  # noqa: E731
    with program_cache():
        kept, asked = entries(folder), programs._opened(folder).asked
        other = threading.Thread(target=user, args=(1.5,))
        other.start()
        other.join()
        assert entries(folder) == kept
        assert programs._opened(folder).asked == asked
        user(2.5)
        assert len(entries(folder)) == len(kept) + 1
    assert compilation_cache._cache is None


def test_threads_share_the_place(folder):
    """The last one out empties it."""
    outcomes = []
    threads = [
        threading.Thread(target=lambda i=i: outcomes.append(added(float(i)) - X)) for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(float(one.mean()) for one in outcomes) == [0, 1, 2, 3, 4, 5]
    assert compilation_cache._cache is None


def test_the_first_program_may_be_traced_inside_another(folder):
    double = jit(lambda x: 2.0 * x)

    @jax.jit
    def both(x):
        with program_cache():
            return double(x)

    assert np.array_equal(both(X), 2.0 * X)
    assert entries(folder)


def test_the_first_program_may_be_for_a_mesh(folder):
    with jax.set_mesh(jax.make_mesh((1,), ("samples",))), jax.enable_x64(True):
        assert np.array_equal(added(1.0), X + 1.0)
    assert entries(folder)


def test_a_callback_is_the_one_of_this_program(folder):
    """Its address is in the program, or its number."""

    def shifted(shift):
        called = lambda x: np.asarray(x + np.float32(shift))  # noqa: E731
        result = jax.ShapeDtypeStruct(X.shape, X.dtype)
        return jit(lambda x: jax.pure_callback(called, result, x))(X)

    for shift in (1.0, 2.0, 1.0):
        assert np.array_equal(shifted(shift), X + shift)


def test_a_loaded_program_still_says_that_it_waits_for_threads(folder):
    covariance = jnp.stack([jnp.eye(3), 2.0 * jnp.eye(3)])
    for _ in range(2):
        assert on_cores(lambda i, x: jnp.linalg.cholesky(x[i]))(2, covariance) is None
    before = num_loaded(folder)
    assert on_cores(lambda i, x: x[i] + 1.0)(2, covariance)
    on_cores(lambda i, x: x[i] + 1.0)(2, covariance)
    assert num_loaded(folder) > before


def test_a_compiled_program_pays_nothing(folder):
    traced = []
    program = jit(lambda x: traced.append(0) or x + 1.0)
    program(X)
    found, arrays = program.program_for((X,), {})

    def seconds(call):
        start = time.perf_counter()
        for _ in range(200):
            call(arrays)
        return (time.perf_counter() - start) / 200

    assert min(seconds(found) - seconds(found.jitted) for _ in range(20)) < 2e-5
    assert len(traced) == 1


_TRAIN = """
import hashlib, json, jax, jax.numpy as jnp, numpy as np, ksivi
from ksivi._core.programs import program_cache
found = {"cache_hits": 0, "cache_misses": 0}
def count(name, **_):
    name = name.split("/")[-1]
    found[name] = found.get(name, 0) + 1
jax.monitoring.register_event_listener(count)
target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2 * jnp.arange(1.0, 4.0)), dim=3)
with program_cache():
    family = ksivi.SemiImplicit.mlp(jax.random.key(1), dim=3, mixing_dim=2)
    fit = ksivi.train(jax.random.key(0), target, family, ksivi.KSIVI(num_samples=10), num_steps=20)
    draws = np.asarray(fit.posterior.sample(jax.random.key(2), 100))
found["draws"] = hashlib.sha256(draws.tobytes() + fit.history["loss"].tobytes()).hexdigest()
print(json.dumps(found))
"""


def started(code, folder, **settings):
    """A process whose user has given JAX no cache. On a GPU, each compilation chooses algorithms by their speed."""
    given = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "KSIVI_PROGRAM_CACHE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(given)}
    env |= {"KSIVI_CACHE": str(folder), "JAX_PLATFORMS": "cpu"}
    env |= {"PYTHONWARNINGS": "error::UserWarning", **settings}
    kept = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=kept, stderr=kept, text=True
    )


def finished(process, timeout=300):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    assert not err
    return out


def test_training_is_the_same_bit_for_bit_and_two_processes_may_write_at_once(tmp_path):
    off = {"KSIVI_PROGRAM_CACHE": "0"}
    running = [
        started(_TRAIN, tmp_path),
        started(_TRAIN, tmp_path),
        started(_TRAIN, tmp_path, **off),
    ]
    *cold, without = [json.loads(finished(one)) for one in running]
    warm = json.loads(finished(started(_TRAIN, tmp_path)))
    assert len({one["draws"] for one in (*cold, without, warm)}) == 1
    assert all(one["cache_misses"] > 0 for one in cold)
    assert without["cache_hits"] == without["cache_misses"] == 0
    assert warm["cache_hits"] > 10
    assert warm["cache_misses"] == 0


@pytest.mark.slow
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the lock is XLA's on a CPU")
def test_loaded_batches_of_matrix_decompositions_do_not_lock(tmp_path):
    for _ in range(2):
        finished(started(_TWO_BATCHES, tmp_path, NPROC="2"), timeout=120)
