"""The command line as a user runs it: the demo, and commands that other packages add."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("typer")


def ksivi(*arguments, path=""):
    """Runs the command in another process, with one more folder of packages."""
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH")])),
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )


@pytest.mark.slow
def test_demo_prints_a_table_and_draws_a_figure(tmp_path):
    done = ksivi("demo", "--steps", "50", "--target", "x-shaped", "--out", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert "x-shaped" in done.stdout
    assert (tmp_path / "new" / "toys.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_json_is_one_object_on_stdout(tmp_path):
    done = ksivi(
        "demo",
        "--steps",
        "50",
        "--target",
        "banana",
        "--out",
        str(tmp_path),
        "--json",
        "--seed",
        "3",
    )
    record = json.loads(done.stdout)
    run = record["problems"]["banana"]
    assert run["status"] == "step limit: ran all 50 steps"
    assert run["steps"] == 50
    assert {
        "kl",
        "mmd",
        "mmd_floor",
        "sliced_wasserstein",
        "sliced_wasserstein_floor",
        "seconds",
    } <= set(run)


@pytest.mark.slow
def test_demo_compares_methods_on_a_hard_posterior(tmp_path):
    done = ksivi("demo", "--target", "eight-gaussians", "--out", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    found = record["beside"]["eight-gaussians"]
    assert list(found) == ["ksivi.fit", "NUTS", "ADVI"]
    assert found["ksivi.fit"]["right"]
    assert found["ksivi.fit"]["says"] == "trusted"
    assert not found["ADVI"]["right"]
    assert record["problems"] == {}
    assert (tmp_path / "fit-nuts-advi.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps must be a whole number of at least 1, got 0"),
        (["--steps", "-3"], "--steps must be a whole number of at least 1, got -3"),
        (["--steps", "many"], "--steps"),
        (["--seed", "-1"], "--seed must be a whole number of at least 0"),
        (["--target", "moon"], "--target must be one of"),
        (["--out", "/dev/null/x"], "--out must be a writable folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message):
    done = ksivi("demo", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_version_and_help():
    assert ksivi("--version").stdout.startswith("ksivi ")
    assert "demo" in ksivi("--help").stdout


def with_entry_point(folder, value):
    """A folder with an installed distribution whose entry point adds the command `extra`."""
    about = folder / "extra-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[ksivi.commands]\nextra = {value}\n")
    return folder


def test_another_package_adds_a_command(tmp_path):
    (tmp_path / "extra_commands.py").write_text(
        "import typer\n\napp = typer.Typer()\n\n\n"
        "@app.command()\ndef hello():\n    print('hello from extra')\n\n\n"
        "@app.command()\ndef fail():\n    raise ValueError('--this must be that')\n"
    )
    path = with_entry_point(tmp_path, "extra_commands:app")
    assert "extra" in ksivi("--help", path=path).stdout
    assert ksivi("extra", "hello", path=path).stdout == "hello from extra\n"
    failed = ksivi("extra", "fail", path=path)
    assert (failed.returncode, failed.stderr) == (2, "error: --this must be that\n")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nowhere:app", "ModuleNotFoundError: No module named 'nowhere'"),
        ("json:dumps", "TypeError: expected a typer.Typer, got <function dumps"),
    ],
)
def test_a_command_that_cannot_be_loaded_costs_one_line(tmp_path, value, reason):
    done = ksivi("--version", path=with_entry_point(tmp_path, value))
    assert done.returncode == 0
    assert done.stdout.startswith("ksivi ")
    assert done.stderr.startswith(f"the command extra ({value}) could not be loaded: {reason}")
    assert done.stderr.count("\n") == 1


def test_without_plug_ins_help_imports_little():
    """As where ksivi-paper is not installed."""
    code = (
        "import importlib.metadata, sys\n"
        "importlib.metadata.entry_points = lambda **chosen: ()\n"
        "import ksivi.cli\n"
        "assert not {'ksivi_paper', 'ksivi.comparison', 'matplotlib', 'blackjax', 'ot'} & set(sys.modules)\n"
        "sys.argv = ['ksivi', '--help']\n"
        "ksivi.cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    commands = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert "compare" in commands
    assert "paper" not in commands


def test_the_paper_is_a_plug_in():
    assert {"run", "list", "report"} <= set(ksivi("paper", "--help").stdout.split())
