"""`ksivi fit | sample | report`: from files to a folder, draws and a page."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.results import Record
from ksivi.training import Chunk

pytest.importorskip("typer")
from typer.testing import CliRunner

from ksivi.cli import app
from ksivi.cli._data import numbers_of, read_data
from ksivi.cli._fit import _remove_snapshots
from ksivi.cli._live import serving
from ksivi.cli._models import target_of
from ksivi.cli._requests import Request
from test_cli import ksivi as command

MODEL = """
import jax.numpy as jnp
import ksivi

dict = dict

def log_density(x):
    return -0.5 * jnp.sum((x - 2.0) ** 2)

def broken(x):
    return ksivi.Target(lambda p: jnp.log(p[0]) + x[0], 2)

def shifted(x, y):
    return -0.5 * jnp.sum((x - y.mean()) ** 2)

def line(x, y):
    import numpyro, numpyro.distributions as dist
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(slope * x, 1), obs=y)

def every(**data):
    line(data["x"], data["y"])

def named(who):
    line(who, who)

def optional(x, y=None):
    line(x, y)

def make(y):
    return ksivi.Target(lambda x: -0.5 * jnp.sum((x - y[0]) ** 2), 2)

target = ksivi.Target(log_density, 3)
number = 3
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.csv").write_text("x,y\n1,1.5\n2,2.5\n3,3.5\n")
    (tmp_path / "x.csv").write_text("x\n1\n2\n")
    (tmp_path / "gap.csv").write_text("x,y\n1,1.5\n2,nan\n")
    return tmp_path / "model.py"


def test_data_come_by_name_from_csv_json_and_npz(tmp_path):
    (tmp_path / "d.csv").write_text('\ufeffgroup,"y"\n0,1.5\n1,2.5\n')
    (tmp_path / "d.json").write_text('{"group": [0, 1], "y": [1.5, 2.5], "n": 2}')
    np.savez(tmp_path / "d.npz", group=np.array([0, 1]), y=np.array([1.5, 2.5]))
    for ending in ("csv", "json", "npz"):
        data = read_data(tmp_path / f"d.{ending}")
        np.testing.assert_array_equal(data["group"], [0, 1])
        np.testing.assert_array_equal(data["y"], [1.5, 2.5])
        assert data["group"].dtype.kind == "i"
    assert read_data(tmp_path / "d.json")["n"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,x\n1,2\n", "a header of different names"),
        (",x\n0,1\n", "a header of different names"),
        ("x,y\n", "and rows below"),
        ("x,y\n1,2\n1\n", "row 2 below it has 1"),
        ("x,y\n1,two\n", "column 'y' has 'two' in row 1"),
        ("x,y\n1,2\n1, \n", "column 'y' has an empty cell in row 2"),
        ("x;y\n1;2\n", "separated by commas, but its header is 'x;y'"),
    ],
)
def test_tables_that_cannot_be_read_are_named(tmp_path, text, message):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        numbers_of(read_data(tmp_path / "d.csv"))


@pytest.mark.parametrize(
    "text",
    [
        '{"y": [1.0, null]}',
        '{"y": ["a", "b"]}',
        '{"y": {"z": 1}}',
        '{"y": [[1], [2, 3]]}',
        "[1]",
        "{",
    ],
)
def test_objects_that_are_not_numbers_are_refused(tmp_path, text):
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(ValueError, match="--data: "):
        numbers_of(read_data(tmp_path / "d.json"))


def test_large_whole_numbers_stay_real(tmp_path):
    """JAX's integers have 32 bits and overflow silently."""
    (tmp_path / "d.csv").write_text('"a,b",n\n100000,1\n3000000000,2\n')
    data = read_data(tmp_path / "d.csv")
    np.testing.assert_allclose(jnp.asarray(data["a,b"]) ** 2, [1e10, 9e18], rtol=1e-5)
    assert data["n"].dtype.kind == "i"


def test_columns_that_a_model_does_not_take_are_not_used(model, capsys):
    shifted = target_of(f"{model}:shifted", 1, model.parent / "data.csv")
    np.testing.assert_allclose(shifted.log_density(jnp.array([2.5])), 0)
    assert "does not take x: not used" in " ".join(capsys.readouterr().err.split())


def test_text_that_a_model_does_not_take_is_left_out(model, capsys):
    (model.parent / "people.csv").write_text("x,y,who,age\n1,1.5,ann,\n2,2.5,bob,30\n")
    text = '{"x": [1, 2], "y": [1.5, 2.5], "who": ["ann", "bob"], "age": [null, 30]}'
    (model.parent / "people.json").write_text(text)
    for name in ("people.csv", "people.json"):
        for function in ("line", "every"):
            target = target_of(f"{model}:{function}", None, model.parent / name)
            assert dict(target.layout) == {"slope": ()}
            said = "".join(capsys.readouterr().err.split())  # a long path is broken anywhere
            assert f":{function}doesnottakewho,age:notused" in said
    with pytest.raises(ValueError, match="--data: column 'who' has 'ann' in row 1"):
        target_of(f"{model}:named", None, model.parent / "people.csv")


def test_what_a_name_may_be(model):
    pytest.importorskip("numpyro")
    data = model.parent / "data.csv"
    assert target_of(f"{model}:log_density", 3, None).dim == 3
    assert target_of(f"{model}:target", None, None).dim == 3
    assert target_of(f"{model}:make", None, _only_y(model)).dim == 2
    shifted = target_of(f"{model}:shifted", 1, _only_y(model))
    np.testing.assert_allclose(shifted.log_density(jnp.array([2.5])), 0)
    line = target_of(f"{model}:line", None, data)
    assert dict(line.layout) == {"slope": ()}
    x, y = np.array([1.0, 2, 3]), np.array([1.5, 2.5, 3.5])
    value = line.log_density(jnp.array([0.7])) - line.log_density(jnp.array([0.0]))
    expected = -0.5 * (0.7**2 + np.sum((y - 0.7 * x) ** 2) - np.sum(y**2))
    np.testing.assert_allclose(value, expected, rtol=1e-4)


def _only_y(model):
    path = model.parent / "y.json"
    path.write_text('{"y": [1.5, 2.5, 3.5]}')
    return path


def test_a_pymc_model_is_found_by_its_type(tmp_path):
    pytest.importorskip("pymc")
    lines = ["import pymc as pm", "with pm.Model() as model:", "    pm.Normal('a')", "def make(y):"]
    lines += [
        "    with pm.Model() as m:",
        "        pm.Normal('y', pm.Normal('b'), observed=y)",
        "    return m",
    ]
    (tmp_path / "model.py").write_text("\n".join(lines))
    (tmp_path / "y.json").write_text('{"y": [1.0, 2.0]}')
    assert dict(target_of(f"{tmp_path / 'model.py'}:model", None, None).layout) == {"a": ()}
    assert dict(target_of(f"{tmp_path / 'model.py'}:make", None, tmp_path / "y.json").layout) == {
        "b": ()
    }


@pytest.mark.parametrize(
    ("name", "dim", "data", "message"),
    [
        ("none", 3, None, "does not define none"),
        ("number", None, None, "must be a log density, a model or a ksivi.Target, got int"),
        ("number", 3, None, "--dim is for a log density"),
        ("target", None, "data.csv", "--data is for a function that takes it"),
        ("line", None, None, "--data must contain what .* takes"),
        ("line", None, "no.csv", "--data must be an existing file"),
        ("line", None, "model.py", "--data must be a .csv, .json or .npz file"),
        ("log_density", None, None, "a log density needs --dim"),
        ("line", 3, "data.csv", "AssertionError; if it is a model, leave out --dim"),
        ("optional", None, "x.csv", "'y' has no data, because the argument 'y' of the model"),
        ("broken", None, "x.csv", "broken failed: ValueError: log_density must be finite"),
        ("dict", None, None, "must be a function whose arguments have names"),
        ("line", None, "gap.csv", r"'y' \(Normal\) is .* in row 1 of 2"),
    ],
)
def test_what_does_not_fit_is_named(model, name, dim, data, message):
    with pytest.raises(ValueError, match=message):
        target_of(f"{model}:{name}", dim, None if data is None else model.parent / data)


def test_the_first_answer_to_try_is_an_option(model, tmp_path, monkeypatch):
    """Requests of earlier versions, which do not name it, leave it to the fit."""
    given = {}

    def stop(key, target, **options):
        given.update(options)
        raise RuntimeError("enough")

    monkeypatch.setattr("ksivi.auto.fit", stop)
    options = ["fit", f"{model}:log_density", "--dim", "2", "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, [*options, "--at-least", "mixture"]).exit_code == 3
    assert given["at_least"] == "mixture"
    request = Request("model.py:log_density", 2, None, 0, None, None, cwd=str(tmp_path))
    request.write(tmp_path)
    old = json.loads((tmp_path / "request.json").read_text())
    del old["at_least"]
    (tmp_path / "request.json").write_text(json.dumps(old))
    assert Request.read_own(tmp_path) == request
    done = CliRunner().invoke(app, [*options, "--at-least", "flow"])
    assert "--at-least must be" in str(done.exception)


@pytest.mark.slow
def test_from_a_file_to_draws_and_a_page(model, tmp_path):
    """Other processes load the posterior without the model's file."""
    out = tmp_path / "run"
    done = command(
        "fit", f"{model}:log_density", "--dim", "2", "--steps", "300", "--out", str(out), "--json"
    )
    facts = json.loads(done.stdout)
    assert done.returncode == (0 if facts["trusted"] else 3), done.stderr
    assert facts["model"] == f"{model}:log_density"
    assert facts["cost"]["steps"] == 300
    model.unlink()
    assert command("sample", str(out), "-n", "2000").returncode == 0
    assert (
        command("sample", str(out), "-n", "100", "--format", "npz", "--seed", "3").returncode == 0
    )
    draws = np.loadtxt(out / "draws.csv", delimiter=",", skiprows=1)
    assert (out / "draws.csv").read_text().startswith("x[0],x[1]\n")
    np.testing.assert_allclose(draws.mean(axis=0), 2, atol=0.2)
    with np.load(out / "draws.npz") as stored:
        again = ksivi.read_record(out).posterior.draws(jax.random.key(3), 100)
        np.testing.assert_array_equal(stored["x"], again["x"])
    assert command("report", str(out)).returncode == 0
    assert "Posterior" in (out / "report.html").read_text()


@pytest.mark.slow
def test_ctrl_c_saves_the_result_so_far(model, tmp_path):
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    log, out = tmp_path / "log.jsonl", tmp_path / "run"
    arguments = ["fit", f"{model}:log_density", "--dim", "2", "--out", str(out), "--log", str(log)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 240
    while time.monotonic() < until and not (log.exists() and log.read_text()):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    facts = json.loads((out / "fit.json").read_text())
    assert facts["status"]["kind"] == "interrupted"
    assert json.loads(log.read_text().splitlines()[0])["step"] == 500


@pytest.mark.slow
def test_a_killed_fit_is_resumed_to_the_same_posterior(model, tmp_path):
    arguments = ["fit", f"{model}:log_density", "--dim", "2", "--steps", "3000"]
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert command(*arguments, "--out", str(whole)).returncode in (0, 3)
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--out", str(out), "--checkpoint"],
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 240
    while time.monotonic() < until and not list(out.glob("checkpoints/step-*")):
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not (out / "fit.json").exists()
    done = command("resume", str(out))
    assert done.returncode in (0, 3), done.stderr
    assert (out / "posterior.safetensors").read_bytes() == (
        whole / "posterior.safetensors"
    ).read_bytes()
    assert not (out / "checkpoints").exists()
    assert "is finished" in " ".join(command("resume", str(out)).stderr.split())


def test_only_a_folder_of_fit_can_be_resumed(tmp_path):
    done = command("resume", str(tmp_path))
    assert done.returncode == 2
    assert "there is no request.json in it" in " ".join(done.stderr.split())


def test_the_live_page_grows_and_needs_its_secret_address(capsys):
    chunk = Chunk(100, 400, 1.5, 2.0, 50.0, list)
    with serving("model.py:log_density") as watch:
        address = next(word for word in capsys.readouterr().err.split() if word.startswith("http"))
        assert address.startswith("http://127.0.0.1:")
        read = lambda: urllib.request.urlopen(address, timeout=10).read().decode()  # noqa: E731
        assert "Searching for a start" in read()
        watch(chunk)
        watch(Chunk(200, 400, 1.2, 4.0, 50.0, list))
        assert "Step 200 of at most 400, loss 1.2" in read()
        assert "<svg" in read()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address.rsplit("/", 2)[0] + "/", timeout=10)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=10)


def test_an_open_browser_gets_the_page_of_the_finished_run(capsys):
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    start = ksivi.SemiImplicit.location_scale(2)
    record = Record.of(
        ksivi.train(jax.random.key(0), target, start, ksivi.SIVI(10, 5), num_steps=5),
        model="m.py:f",
    )
    with serving("m.py:f") as watch:
        address = next(word for word in capsys.readouterr().err.split() if word.startswith("http"))
        read = lambda: urllib.request.urlopen(address, timeout=10).read().decode()  # noqa: E731
        assert "http-equiv" in read()
        ending = threading.Thread(target=watch.finish, args=(record,))
        ending.start()
        while "http-equiv" in (page := read()):
            time.sleep(0.1)
        ending.join(timeout=5)
        assert not ending.is_alive()
    assert "Not checked" in page


def test_without_a_browser_there_is_no_wait(capsys):
    with serving("m.py:f") as watch:
        watch.finish(None)


def test_bad_folders_are_one_line(tmp_path):
    for arguments in (["sample", str(tmp_path)], ["report", str(tmp_path)]):
        done = command(*arguments)
        assert done.returncode == 2
        assert "must be the folder of a finished `ksivi fit`" in " ".join(done.stderr.split())


def test_files_that_are_no_snapshots_stay_when_a_fit_is_complete(tmp_path):
    (tmp_path / "run-1").mkdir()
    for name in ("step-000000000500.safetensors", "run-1/step-000000000500.safetensors", "mine.pt"):
        (tmp_path / name).write_text("x")
    _remove_snapshots(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.pt"]
    (tmp_path / "mine.pt").unlink()
    _remove_snapshots(tmp_path)
    assert not tmp_path.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_stdout_is_reported_and_nothing_else_fails():
    code = "from ksivi.cli._shared import say; say('word'); say('more'); raise SystemExit(3)"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 3
    assert done.stderr.strip() == "stdout could not be written: No space left on device"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_log_that_is_a_pipe_without_a_reader_is_refused(tmp_path):
    os.mkfifo(tmp_path / "log")
    with pytest.raises(ValueError, match="path must name a file that can be written"):
        ksivi.JSONLines(tmp_path / "log")
