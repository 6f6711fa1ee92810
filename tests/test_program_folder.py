"""The folder of programs kept on disk: who may open it, damage to it, a full disk, old programs."""

import errno
import os
import stat
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import kept_programs
from kept_programs import X, added, entries, num_loaded
from ksivi._core import programs, shelf
from ksivi._core.cache import prune

folder = kept_programs.folder  # the fixture


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
