import json
import subprocess
import sys

import pytest

pytest.importorskip("typer")


def ksivi(*arguments):
    """Runs the installed command in a process of its own."""
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_demo_prints_a_table_and_draws_a_figure(tmp_path):
    done = ksivi("demo", "--steps", "50", "--target", "x-shaped", "--out", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert "x-shaped" in done.stdout
    assert (tmp_path / "new" / "toys.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_json_is_one_object_on_stdout(tmp_path):
    done = ksivi("demo", "--steps", "50", "--target", "banana", "--out", str(tmp_path), "--json", "--seed", "3")
    record = json.loads(done.stdout)
    run = record["problems"]["banana"]
    assert run["status"] == "step limit: ran all 50 steps"
    assert run["steps"] == 50
    assert {"kl", "mmd", "mmd_floor", "sliced_wasserstein", "sliced_wasserstein_floor", "seconds"} <= set(run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps must be a whole number of at least 1, got 0"),
        (["--steps", "-3"], "--steps must be a whole number of at least 1, got -3"),
        (["--steps", "many"], "--steps"),
        (["--seed", "-1"], "--seed must be a whole number of at least 0"),
        (["--target", "moon"], "--target must be one of"),
        (["--out", "/dev/null/x"], "--out must be a folder that can be written"),
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
