"""Writes of records that fail, are killed or meet another writer: the old or the new record is there, whole.

`KSIVI_WRITES=200 pytest tests/test_record_writes.py` makes 200 writes in two processes. The default is a few.
"""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

import ksivi
from ksivi._core.files import locked
from ksivi.families import Empirical
from ksivi.results import ParticleDiagnostics, Record, _record_files

pytest.importorskip("typer")
from ksivi.cli._saving import printable, save_record
from ksivi.cli._shared import folder as writable_folder

WRITES = int(os.environ.get("KSIVI_WRITES", "20"))
TARGET = ksivi.Target(lambda x: -0.5 * jax.numpy.sum(x**2), dim=2)
FILES = {"fit.json", "history.npz", "posterior.safetensors"}


def record(name, draws=50, steps=50, about=""):
    """A record whose three files have any sizes, with numbers that tell it from others."""
    rng = np.random.default_rng(len(name))
    posterior = ksivi.Posterior.of(
        Empirical(jax.numpy.asarray(rng.normal(size=(draws, 2)))), TARGET
    )
    history = {"step": np.arange(steps), "loss": rng.normal(size=steps)}
    status = ksivi.Status("converged", name)
    diagnostics = ParticleDiagnostics(stein_ratio=1.0)
    fit = ksivi.Fit(posterior, status, True, diagnostics, history, ksivi.Cost(0.0, 0, 0), None)
    return Record.of(fit, model=name, about=about)


def name_of(folder):
    """The name of the record in a folder, after a look at all its files."""
    found = ksivi.read_record(folder)
    expected = np.random.default_rng(len(found.facts["model"]))
    draws = np.asarray(found.posterior.family.points)
    np.testing.assert_allclose(draws, expected.normal(size=draws.shape), rtol=1e-5)
    np.testing.assert_array_equal(
        found.history["loss"], expected.normal(size=len(found.history["loss"]))
    )
    return found.facts["model"]


@contextlib.contextmanager
def largest_file(num_bytes):
    """The system refuses to write more bytes into one file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("longest", [{"draws": 5_000}, {"steps": 5_000}, {"about": "x" * 50_000}])
def test_a_write_that_stops_at_any_byte_leaves_a_whole_record(tmp_path, longest):
    record("old").write(tmp_path)
    new = record("the new one", **longest)
    new.write(tmp_path / "sizes")
    size = max(path.stat().st_size for path in (tmp_path / "sizes").iterdir())
    for limit in np.linspace(0, size - 1, 34).astype(int).tolist():
        with largest_file(limit), pytest.raises(OSError, match="File too large"):
            new.write(tmp_path)
        assert name_of(tmp_path) == "old"
        assert {path.name for path in tmp_path.iterdir()} == FILES | {"sizes"}
    with largest_file(size):
        new.write(tmp_path)
    assert name_of(tmp_path) == "the new one"


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte. Only root may mount one."""
    place, mount = tmp_path / "disk", shutil.which("mount")
    place.mkdir()
    command = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_leaves_a_whole_record(small_disk):
    """100 disks, with room for no page of the new record, one page more, and so on, until it fits."""
    record("old").write(small_disk / "run")
    new, found = record("the new one", draws=20_000, steps=20_000), []
    for pages in range(100):
        record("old").write(small_disk / "run")
        disk = os.statvfs(small_disk)
        (small_disk / "full").write_bytes(bytes((disk.f_bavail - pages) * disk.f_bsize))
        with contextlib.suppress(OSError):
            new.write(small_disk / "run")
        found.append(name_of(small_disk / "run"))
        assert {path.name for path in (small_disk / "run").iterdir()} == FILES
        (small_disk / "full").unlink()
    assert set(found) == {"old", "the new one"}
    assert found == sorted(found)


KILLED = """
import os, sys
from ksivi.results import _record_files as files
folder, calls = files.Path(sys.argv[1]), 0

def until(limit, call):
    def counted(*arguments):
        global calls
        calls += 1
        if calls > limit:
            os._exit(9)
        return call(*arguments)
    return counted

contents = {name: (files.Path(sys.argv[2]) / name).read_bytes() for name in os.listdir(sys.argv[2])}
facts = contents.pop(files.FACTS)
for limit in range(20):
    if os.fork() == 0:
        os.replace, os.fsync, os.unlink = (until(limit, one) for one in (os.replace, os.fsync, os.unlink))
        files.replace_record(folder / str(limit), facts, contents, sys.argv[3])
        os._exit(0)
    os.wait()
"""


def test_a_killed_write_leaves_a_whole_record(tmp_path):
    """The process dies before each call that changes the folder. The next write leaves no trace of it."""
    old, new = record("old"), record("the new one")
    new.write(tmp_path / "new")
    for limit in range(20):
        old.write(tmp_path / str(limit))
    sha256 = _record_files._stated(tmp_path / "new" / "fit.json")
    subprocess.run([sys.executable, "-c", KILLED, tmp_path, tmp_path / "new", sha256], check=True)
    found = [name_of(tmp_path / str(limit)) for limit in range(20)]
    assert found == sorted(found)
    assert set(found) == {"old", "the new one"}
    for limit in range(20):
        record("a third one").write(tmp_path / str(limit))
        assert {path.name for path in (tmp_path / str(limit)).iterdir()} == FILES
        assert name_of(tmp_path / str(limit)) == "a third one"


def test_two_threads_write_and_a_third_one_reads(tmp_path):
    names, failures, over = ("one", "the other"), [], threading.Event()
    record(names[0]).write(tmp_path)

    def write(name):
        made = record(name)
        for _ in range(WRITES // 2):
            made.write(tmp_path)

    def read():
        while not over.is_set():
            assert name_of(tmp_path) in names

    def heard(work, *arguments):
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=heard, args=(write, name)) for name in names]
    reader = threading.Thread(target=heard, args=(read,))
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    assert not failures
    assert name_of(tmp_path) in names
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_a_writer_that_does_not_end_is_an_error_and_not_a_wait_for_ever(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(TimeoutError, match="another process is still writing into"),
        locked(tmp_path, patience_s=0.1),
    ):
        pass
    with locked(tmp_path, patience_s=0.1), locked(tmp_path / "none"):
        pass


@pytest.mark.slow
def test_two_processes_write_into_one_folder(tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_record_writes import record\n"
        f"made = record(sys.argv[1])\nfor _ in range({WRITES // 2}): made.write({str(tmp_path)!r})"
    )
    names = ("one", "the other")
    writers = [
        subprocess.Popen([sys.executable, "-c", code, name], stderr=subprocess.PIPE, text=True)
        for name in names
    ]
    while not (tmp_path / "fit.json").exists() and any(one.poll() is None for one in writers):
        pass
    while any(one.poll() is None for one in writers):
        assert name_of(tmp_path) in names
    assert [one.communicate()[1] for one in writers] == ["", ""]
    assert name_of(tmp_path) in names
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_names_that_are_no_text_are_kept(tmp_path):
    name = os.fsdecode(b"d\xff.csv")
    record("a", about=name).write(tmp_path)
    assert ksivi.read_record(tmp_path).facts["about"] == name
    assert printable(name) == "d\\xff.csv"


def test_a_folder_that_cannot_be_written_is_refused_before_the_work():
    with pytest.raises(ValueError, match=r"--out must be a writable folder, got /proc/self"):
        writable_folder(Path("/proc/self"))


def test_results_are_saved_elsewhere_if_their_folder_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = str(save_record(record("new"), Path("/proc/self/fd")))
    assert "/proc/self/fd could not be written" in problem
    (saved,) = tmp_path.glob("ksivi-unsaved-*")
    assert f"The results are in {saved}; next: ksivi report {saved}" in problem
    assert name_of(saved) == "new"
    assert save_record(record("new"), tmp_path / "run") is None


def test_where_there_is_no_room_at_all_this_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record("old").write(tmp_path / "run")
    with largest_file(100):
        problem = str(save_record(record("new"), tmp_path / "run"))
    assert "The results are lost: there was no other folder with room" in problem
    assert name_of(tmp_path / "run") == "old"
    assert not list(tmp_path.glob("ksivi-unsaved-*"))
