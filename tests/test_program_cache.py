"""Programs kept on disk: the same results, whatever happens to the folder; and nothing of the user's is touched."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compilation_cache

from ksivi._core import programs, shelf
from ksivi._core.cache import prune
from ksivi._core.compile import jit, on_cores
from ksivi._core.programs import program_cache
from test_compile import _TWO_BATCHES

X = jnp.arange(6.0).reshape(2, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder, in a process whose user has given JAX no cache."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    monkeypatch.setenv("KSIVI_CACHE", str(tmp_path))
    monkeypatch.delenv("KSIVI_PROGRAM_CACHE", raising=False)
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def added(constant):
    """x + constant from a new function, so that JAX does not remember the program: it is compiled or loaded."""
    return np.asarray(jit(lambda x: x + constant)(X))


def entries(folder):
    return {path: path.read_bytes() for path in folder.glob("programs/*/*-program")}


def num_loaded(folder):
    return programs._opened(folder).loaded


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


def test_only_the_owner_can_open_the_folders(folder):
    added(1.0)
    for path in (folder / "programs", *folder.glob("programs/*")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def swap(one, other):
    contents = one.read_bytes(), other.read_bytes()
    other.write_bytes(contents[0])
    one.write_bytes(contents[1])


DAMAGE = {
    "garbage": lambda one, other: one.write_bytes(os.urandom(4_000)),
    "a flipped bit": lambda one, other: one.write_bytes(
        one.read_bytes()[:-1] + bytes([one.read_bytes()[-1] ^ 1])
    ),
    "truncated": lambda one, other: one.write_bytes(one.read_bytes()[:-100]),
    "empty": lambda one, other: one.write_bytes(b""),
    "swapped": swap,
    "a pipe": lambda one, other: (one.unlink(), os.mkfifo(one)),
    "a folder": lambda one, other: (one.unlink(), one.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_costs_time_and_no_answer(folder, damage):
    added(0.0)  # with the first one, other programs are made
    before = set(entries(folder))
    expected = [added(constant) for constant in (1.0, 2.0)]
    damage(*sorted(set(entries(folder)) - before))
    for _ in range(2):
        found = [added(constant) for constant in (1.0, 2.0)]
        assert np.array_equal(found, expected)


def test_a_damaged_entry_is_replaced(folder):
    added(1.0)
    kept = entries(folder)
    for path in kept:
        path.write_bytes(b"damaged")
    added(1.0)
    before = num_loaded(folder)
    added(1.0)
    assert num_loaded(folder) == before + 1


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


@pytest.mark.parametrize("what", ["writable by others", "a link", "a file", "another user's"])
def test_an_unsafe_folder_is_not_used(folder, what):
    place = folder / "programs"
    if what == "a link":
        (folder / "elsewhere").mkdir()
        place.symlink_to(folder / "elsewhere")
    elif what == "a file":
        place.write_text("")
    else:
        place.mkdir(mode=0o700)
        place.chmod(0o777 if what == "writable by others" else 0o700)
    if what == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(place, 12_345, -1)
    assert np.array_equal(added(1.0), X + 1.0)
    assert not place.is_dir() or not list(place.iterdir())


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_a_full_disk_is_no_error(folder, monkeypatch, when):
    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    if when == "later":
        added(1.0)
    kept = entries(folder)
    monkeypatch.setattr(Path, "write_bytes", full)
    assert np.array_equal(added(2.0), X + 2.0)
    assert entries(folder) == kept
    assert not list(folder.glob("programs/*/.*.part"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_read_only_folder_is_no_error(folder):
    folder.chmod(0o500)
    assert np.array_equal(added(1.0), X + 1.0)
    folder.chmod(0o700)


def test_what_jax_rejects_is_not_kept_and_nobody_hears_of_it(folder, monkeypatch, capfd):
    def complaining(x):
        os.write(
            2, b"E0000 cpu_aot_loader.cc] Loading XLA:CPU AOT result. Target machine feature\n"
        )
        return product(x)

    product = programs._product
    monkeypatch.setattr(programs, "_product", complaining)
    assert np.array_equal(added(1.0), X + 1.0)
    assert [path.read_text() for path in folder.glob("programs/*/cpu-loads")] == ["no"]
    assert "AOT" not in capfd.readouterr().err
    programs._opened.cache_clear()
    monkeypatch.setattr(programs, "_product", product)
    kept = entries(folder)
    added(2.0)
    assert entries(folder) == kept


@pytest.mark.parametrize("record", ["being tried", "no", "", "yes"])
def test_only_what_was_seen_to_load_is_loaded(folder, record):
    place = folder / "programs" / programs._tag()
    place.mkdir(parents=True, mode=0o700)
    for platform in {"cpu", jax.default_backend()}:
        (place / f"{platform}-loads").write_text(record)
    (folder / "programs").chmod(0o700)
    added(1.0)
    assert bool(entries(folder)) == (record == "yes")


def test_other_messages_are_passed_on(folder, monkeypatch, capfd):
    product = programs._product
    monkeypatch.setattr(programs, "_product", lambda x: (os.write(2, b"hello"), product(x))[1])
    added(1.0)
    assert "hello" in capfd.readouterr().err
    assert entries(folder)


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


def test_old_programs_and_old_folders_are_removed(tmp_path):
    def make(path, days, size=100):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        os.utime(path, (time.time() - 86_400 * days,) * 2)

    for i in range(10):
        make(tmp_path / "now" / str(i), days=i)
    make(tmp_path / "old" / "0", days=100)
    prune(tmp_path, most_bytes=10_000, most_days=60)
    assert [path.name for path in tmp_path.iterdir()] == ["now"]
    prune(tmp_path, most_bytes=350, most_days=60)
    assert {path.name for path in (tmp_path / "now").iterdir()} == {"0", "1", "2"}


def test_a_long_process_removes_old_programs_too(folder, monkeypatch):
    added(1.0)
    monkeypatch.setattr(shelf, "_TIDY_AFTER", 0)
    (old,) = folder.glob("programs/*/cpu-loads")
    os.utime(old, (0, 0))
    added(2.0)
    assert not old.exists()


def test_other_processors_and_versions_have_other_folders(monkeypatch):
    tags = {programs._tag()}
    for module, name, value in [
        (jax, "__version__", "9.9"),
        (programs, "__version__", "9.9"),
        (programs, "_processor", lambda: "flags: abacus"),
        (programs, "num_threads", lambda: 77),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            tags.add(programs._tag())
    assert len(tags) == 5


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
