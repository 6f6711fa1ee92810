"""Random calls of the Python API and the command line: an answer, or an error that names an argument.

`KSIVI_FUZZ=2000 pytest tests/test_fuzz.py` makes as many calls of either; a few are made otherwise.
"""

import os
import re
import shutil
import sys
import warnings

import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import calls
import ksivi
from ksivi.cli import app, main

KINDS = {"converged", "step limit", "diverged", "not trusted", "interrupted"}


def some(few: int) -> settings:
    """So many calls, the same ones every time unless their number is asked for."""
    number = int(os.environ.get("KSIVI_FUZZ", few))
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=checks,
        derandomize=True,
        database=None,
    )


@st.composite
def wrong_calls(draw):
    """A call, and one or two of its arguments changed."""
    name = draw(st.sampled_from(sorted(calls.CALLS)))
    arguments = sorted(calls.CALLS[name].arguments)
    changed = draw(st.lists(st.sampled_from(arguments), min_size=1, max_size=2, unique=True))
    return name, {one: draw(st.sampled_from(calls.places(one))) for one in changed}


@some(60)
@given(wrong_calls())
def test_calls_answer_or_name_what_was_wrong(tmp_path_factory, monkeypatch, wrong):
    monkeypatch.chdir(deep(tmp_path_factory))
    name, changes = wrong
    one = calls.CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflows, of folders that cannot be written
        found = answer(one, {argument: calls.JUNK[i] for argument, i in changes.items()})
    event("refused" if isinstance(found, Exception) else "answered")
    if isinstance(found, Exception):
        assert names_one_of(to_blame(name, changes), str(found)) or calls.THEIRS in str(found), (
            found
        )
    for fit in [
        one for one in (found if isinstance(found, list) else [found]) if isinstance(one, ksivi.Fit)
    ]:
        assert fit.status.kind in KINDS
        assert fit.status.reason


def deep(tmp_path_factory):
    """A folder of its own for every call, from which .. leads nowhere else."""
    folder = tmp_path_factory.mktemp("call") / "a" / "b"
    folder.mkdir(parents=True)
    return folder


def to_blame(name, changes):
    """The arguments that were changed, and those that do not go with them any more."""
    return {partner for one in changes for partner in (one, *calls.PARTNERS.get((name, one), ()))}


def answer(call, changes):
    """What a call gives, or the error that says that its arguments are wrong; any other goes through."""
    try:
        return call(**changes)
    except (ValueError, TypeError) as error:
        return error


def names_one_of(arguments, message):
    return any(
        re.search(rf"(?<![A-Za-z]){re.escape(one)}(?![A-Za-z])", message) for one in arguments
    )


MODEL = """
import jax.numpy as jnp

def log_density(x):
    return -0.5 * jnp.sum((x - 2.0) ** 2)

def failing(x):
    raise KeyError("of the user's own")

def model(y):
    import numpyro, numpyro.distributions as dist
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(slope, 1), obs=y)

number = 3
"""

WORDS = [
    *(
        "",
        " ",
        "text",
        "0",
        "1",
        "2",
        "-1",
        "3.5",
        "nan",
        "inf",
        "1e400",
        "99999999999999999999",
        "true",
        "[1]",
        "☃",
    ),
    *(
        ".",
        "..",
        "/",
        "missing",
        "missing/deep",
        "model.py",
        "model.py:",
        ":",
        "model.py:log_density",
        "model.py:model",
    ),
    *(
        "model.py:number",
        "model.py:failing",
        "model.py:missing",
        "broken.py:log_density",
        "missing.py:x",
        "os:system",
    ),
    *(
        "data.csv",
        "ragged.csv",
        "noise.npz",
        "noise.json",
        "record",
        "damaged",
        "/dev/null",
        "~",
        "*",
        "--",
        "-n",
    ),
]

# Every command of `ksivi`, with words that it accepts. A line that passes all checks is run, so these
# take a few steps, or draw from a saved sampler.
COMMANDS = {
    "fit": (
        ["model.py:log_density"],
        {"--dim": "2", "--data": None, "--out": "run", "--seed": "1", "--steps": "5"},
    ),
    "calibrate": (
        ["model.py:model"],
        {"--data": "data.csv", "--replications": "2", "--seed": "1", "--steps": "5"},
    ),
    "resume": (["record"], {}),
    "sample": (["record"], {"-n": "5", "--format": "csv", "--out": "draws.csv", "--seed": "1"}),
    "report": (["record"], {"--out": "page.html"}),
    "compare": (
        ["banana"],
        {"--methods": "no", "--dim": None, "--preset": "short", "--seed": "1", "--workers": None},
    ),
    "demo": ([], {"--target": "no", "--steps": "5", "--out": "demo", "--seed": "1"}),
    "paper": (
        ["run", "toys"],
        {"--preset": "no", "--only": None, "--out": "paper", "--executor": "no"},
    ),
}


def test_every_command_is_in_the_table():
    assert {one.callback.__name__ for one in app.registered_commands} <= set(COMMANDS)


@st.composite
def wrong_commands(draw):
    """A command line with one to three of its words replaced, and its options in any order."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    positional, options = COMMANDS[name]
    words = {f"argument {i}": word for i, word in enumerate(positional)} | options
    for one in (
        draw(st.lists(st.sampled_from(sorted(words)), min_size=1, max_size=3, unique=True))
        if words
        else []
    ):
        words[one] = draw(st.sampled_from(WORDS))
    chosen = draw(st.permutations([one for one in options if words[one] is not None]))
    line = [words[one] for one in words if one.startswith("argument")]
    return [name, *line, *(part for one in chosen for part in (one, words[one]))]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models, data and a record, some of them broken."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL)
    (folder / "broken.py").write_text("def log_density(x)\n")
    (folder / "data.csv").write_text("y\n1.5\n2.5\n")
    (folder / "ragged.csv").write_text("x,y\n1,1.5\n2\n")
    for noise in ("noise.npz", "noise.json"):
        (folder / noise).write_bytes(bytes(range(256)))
    fit = ksivi.train(calls.KEY, calls.TARGET, calls.FAMILY, calls.OBJECTIVE, num_steps=2)
    ksivi.Record.of(fit, model="a").write(folder / "record")
    shutil.copytree(folder / "record", folder / "damaged")
    for file in (folder / "damaged").iterdir():
        file.write_bytes(file.read_bytes()[:40])
    return folder


def exit_code():
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0
    return 0


@pytest.mark.slow
@some(40)
@given(line=wrong_commands())
def test_commands_answer_or_say_what_was_wrong(place, tmp_path_factory, monkeypatch, capsys, line):
    """Exit codes 0 and 3 after work, 2 for bad input with one message: never a traceback."""
    folder = deep(tmp_path_factory)
    shutil.copytree(place, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["ksivi", *line])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = exit_code()
    said = capsys.readouterr().err
    event(f"exit {code}")
    assert code in (0, 2, 3), said
    assert "Traceback" not in said
    if code == 2:
        assert re.search(r"error: .{10,}|Usage:", said, re.IGNORECASE), said
