"""Folders from elsewhere are data: no code in them runs, no link in them is followed, nothing hangs."""

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import stat
import threading

import jax.numpy as jnp
import pytest

import killed
import ksivi
from ksivi.families import Empirical
from ksivi.results import Posterior, Record

pytest.importorskip("typer")
from typer.testing import CliRunner

from ksivi.cli import _signing, app
from ksivi.cli._data import read_data
from ksivi.cli._requests import Request

MODEL = """
import pathlib
pathlib.Path(__file__).with_name("has-run").touch()
raise ValueError("enough is known")
"""


@functools.cache
def small_record():
    return Record.of(killed.run(num_steps=10), model="a")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KSIVI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def signed(tmp_path, cache):
    """A folder that the user's own fit wrote, with the model beside it."""
    (tmp_path / "model.py").write_text(MODEL)
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    request_of(tmp_path).claim(folder)
    return folder


def request_of(place, **changes):
    plain = Request("model.py:log_density", 2, None, 0, None, None, cwd=str(place))
    return dataclasses.replace(plain, **changes)


def cli(*words):
    """The error of a command, or None; its exit is no error."""
    found = CliRunner().invoke(app, [str(word) for word in words]).exception
    return None if isinstance(found, SystemExit) else found


def edited(folder, **changes):
    found = json.loads((folder / "request.json").read_text())
    (folder / "request.json").write_text(json.dumps(found | changes))


def test_the_users_own_folder_is_resumed(signed):
    assert "enough is known" in str(cli("resume", signed))
    assert (signed.parent / "has-run").exists()


def test_the_key_is_for_the_user_alone(signed, cache):
    key = cache / "signing-key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    content = key.read_bytes()
    request_of(signed.parent, seed=1).write(signed)
    assert key.read_bytes() == content
    assert [path.name for path in cache.iterdir()] == ["signing-key"]


def move(folder, cache):
    return folder.rename(folder.with_name("moved"))


def copy(folder, cache):
    return shutil.copytree(folder, folder.with_name("copied"))


def link(folder, cache):
    """The request of one folder in another."""
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "request.json").symlink_to(folder / "request.json")
    return folder.parent / "other"


def edit(folder, cache):
    edited(folder, seed=7)
    return folder


def another_model(folder, cache):
    (folder / "evil.py").write_text(MODEL)
    edited(folder, model=str(folder / "evil.py") + ":log_density")
    return folder


def another_working_folder(folder, cache):
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    shutil.copy(folder.parent / "model.py", elsewhere)
    edited(folder, cwd=str(elsewhere))
    return folder


def change_the_model(folder, cache):
    (folder.parent / "model.py").write_text(MODEL + "# changed\n")
    return folder


def lose_the_key(folder, cache):
    (cache / "signing-key").unlink()
    return folder


def another_key(folder, cache):
    (cache / "signing-key").unlink()
    request_of(folder).write(folder.parent)
    return folder


def open_the_key(folder, cache):
    (cache / "signing-key").chmod(0o644)
    return folder


def cut_the_key(folder, cache):
    (cache / "signing-key").write_bytes(b"")
    return folder


def no_signature(folder, cache):
    edited(folder, signature=None)
    return folder


def empty_signature(folder, cache):
    edited(folder, signature="ü")
    return folder


ATTACKS = [move, copy, link, edit, another_model, another_working_folder, change_the_model]
ATTACKS += [lose_the_key, another_key, open_the_key, cut_the_key, no_signature, empty_signature]


@pytest.mark.parametrize("attack", ATTACKS)
def test_other_folders_run_nothing(attack, signed, cache):
    folder = attack(signed, cache)
    error = cli("resume", folder)
    assert isinstance(error, ValueError)
    assert "--model FILE.py:NAME" in str(error)
    assert not list(signed.parent.rglob("has-run")) + list(folder.rglob("has-run"))


def test_a_model_that_the_user_names_runs(signed, cache, tmp_path, monkeypatch):
    folder = move(signed, cache)
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(tmp_path / "model.py", own / "mine.py")
    monkeypatch.chdir(own)
    assert "must be FILE.py:NAME" in str(cli("resume", folder, "--model", "none.py:log_density"))
    assert "--data must come with --model" in str(cli("resume", folder, "--data", "d.csv"))
    assert "enough is known" in str(cli("resume", folder, "--model", "mine.py:log_density"))
    assert (own / "has-run").exists()
    assert not (tmp_path / "has-run").exists()
    # The folder is now the user's own.
    assert Request.read_own(folder) == request_of(own, model="mine.py:log_density")


def test_no_home_means_no_signature(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("KSIVI_CACHE", str(tmp_path / "file"))
    assert _signing.sign({"cwd": "", "model": ""}, tmp_path) is None


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["report"], "report.html"),
        (["sample", "-n", "3"], "draws.csv"),
        (["sample", "-n", "3", "--format", "npz"], "draws.npz"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_links_are_replaced_and_not_followed(words, name, exists, tmp_path):
    small_record().write(tmp_path / "run")
    victim = tmp_path / "victim"
    if exists:
        victim.write_text("precious")
    (tmp_path / "run" / name).symlink_to(victim)
    before = set(os.listdir(tmp_path / "run"))
    assert cli(words[0], tmp_path / "run", *words[1:]) is None
    assert victim.read_text() == "precious" if exists else not victim.exists()
    assert not (tmp_path / "run" / name).is_symlink()
    assert (tmp_path / "run" / name).stat().st_size > 20
    assert set(os.listdir(tmp_path / "run")) == before


def test_an_output_that_the_user_names_may_be_a_pipe(tmp_path):
    small_record().write(tmp_path / "run")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(pipe.read_text().splitlines()))
    reader.start()
    assert cli("sample", tmp_path / "run", "-n", "3", "--out", pipe) is None
    reader.join(10)
    assert len(lines) == 4
    assert pipe.is_fifo()


def test_a_page_shows_no_file_that_is_no_image(tmp_path):
    methods = {"status": "", "sliced_wasserstein": 1, "seconds": 1, "steps": 1, "score_evals": 1}
    found = {"problem": "a", "floor": 1.0, "methods": {"ksivi": methods}}
    (tmp_path / "a.json").write_text(json.dumps(found))
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "a.png").symlink_to(tmp_path / "secret")
    assert cli("report", tmp_path) is None
    assert "<img" not in (tmp_path / "report.html").read_text()


def pipe(path):
    os.mkfifo(path)


def folder(path):
    path.mkdir()


def device(path):
    path.symlink_to("/dev/zero")


def dangling(path):
    path.symlink_to("nowhere")


def in_time(function):
    """The error of a call that must end, or None."""
    errors = []

    def run():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    return errors[0] if errors else None


@pytest.mark.parametrize("kind", [pipe, folder, device, dangling])
@pytest.mark.parametrize("name", ["fit.json", "history.npz", "posterior.safetensors"])
def test_records_of_other_files_are_refused(kind, name, tmp_path):
    small_record().write(tmp_path)
    (tmp_path / name).unlink()
    kind(tmp_path / name)
    assert isinstance(in_time(lambda: ksivi.read_record(tmp_path)), ValueError)


@pytest.mark.parametrize("kind", [pipe, folder, device, dangling])
def test_other_files_in_a_folder_are_passed_over(kind, tmp_path):
    """Beside a record, as figures, and as requests, checkpoints and data."""
    small_record().write(tmp_path)
    kind(tmp_path / "a.json")
    assert in_time(lambda: cli("report", tmp_path)) is None
    assert (tmp_path / "report.html").is_file()
    kind(tmp_path / "request.json")
    kind(tmp_path / "d.csv")
    kind(tmp_path / "p.safetensors")
    kind(tmp_path / "step-000000000010.safetensors")
    for use in (
        lambda: Request.read(tmp_path),
        lambda: read_data(tmp_path / "d.csv"),
        lambda: ksivi.load(tmp_path / "p.safetensors"),
    ):
        assert isinstance(in_time(use), ValueError)
    if kind is not dangling:
        with pytest.warns(RuntimeWarning, match="damaged checkpoint"):
            assert isinstance(in_time(lambda: killed.run(tmp_path, num_steps=10)), ValueError)


def forge(folder, posterior):
    """A record whose sums are right, with this posterior in it."""
    small_record().write(folder)
    posterior.save(folder / "posterior.safetensors")
    parameters = {name: list(shape) for name, shape in posterior.layout}
    facts = small_record().facts | {"parameters": parameters}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in ("history.npz", "posterior.safetensors"):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    (folder / "fit.json").write_text(json.dumps(facts | {"sha256": digest.hexdigest()}))


COMMANDS = [("report",), ("sample", "-n", "3"), ("sample", "-n", "3", "--format", "npz")]


@pytest.mark.parametrize("name", ["\ud800x", "n" * 70_000], ids=["surrogate", "long"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_names_that_no_file_can_hold_are_refused(name, words, tmp_path):
    posterior = Posterior(Empirical(jnp.zeros((5, 2))), None, ((name, (2,)),))
    forge(tmp_path, posterior)
    error = cli(words[0], tmp_path, *words[1:])
    assert isinstance(error, ValueError)
    assert "a name in the layout must be UTF-8 text of at most 1,000 characters" in str(error)
    assert len(str(error)) < 1_000
    str(error).encode()


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_draws_that_are_not_finite_are_refused(value, words, tmp_path):
    draws = jnp.zeros((5, 2)).at[:, 1].set(value)
    forge(tmp_path, Posterior(Empirical(draws), None, (("a", ()), ("b", ()))))
    before = set(os.listdir(tmp_path))
    error = cli(words[0], tmp_path, *words[1:])
    assert isinstance(error, ValueError)
    assert "the draws of this posterior are not finite: 'b'" in str(error)
    assert set(os.listdir(tmp_path)) == before
