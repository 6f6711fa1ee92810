"""The glossary: a section about each code, with an example that prints what the page says."""

import ast
import contextlib
import functools
import io
import re
from pathlib import Path

import pytest

from ksivi.auto._modes import _MOST_MODES
from ksivi.results import Code
from ksivi.results._table import TAIL

CODES = {one.value: one for one in Code}

PAGE = Path(__file__).parents[1] / "docs" / "glossary.md"
SOURCE = Path(__file__).parents[1] / "src" / "ksivi"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
PARTS = ("**Cause.**", "**What it looks like.**", "**What to do.**")
SLOW = {"divergences"}
"""NUTS compiles for ten seconds."""


@functools.cache
def sections():
    """The text of each section, by its anchor."""
    parts = re.split(r"^### ([a-z-]+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    bodies = [re.split(r"^## ", body, flags=re.MULTILINE)[0] for body in parts[2::2]]
    return dict(zip(parts[1::2], bodies, strict=True))


@pytest.fixture(scope="module")
def shared():
    """What the first block of the page defines."""
    names = {}
    exec(BLOCK.findall(PAGE.read_text(encoding="utf-8"))[0][0], names)
    return names


def test_every_code_has_a_section_and_every_section_a_code():
    assert set(sections()) == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_section_says_cause_look_and_remedy(code):
    places = [sections()[code].find(part) for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)
    assert BLOCK.search(sections()[code])


def test_codes_are_words_and_say_what_to_do():
    for name, code in CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert code.title
        assert code.next_step.endswith(".")


def calls(path):
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def raised(path):
    """The codes of which a file makes doubts: `Code.X.doubt(...)`, or X given to what does so."""
    tree = ast.parse(path.read_text())
    makers = {
        one.name
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef) and any(map(makes_a_doubt_of_a_name, ast.walk(one)))
    }
    for call in calls(path):
        match call.func:
            case ast.Attribute(value=of, attr="doubt"):
                given = [of]
            case ast.Attribute(value=ast.Dict(values=values), attr="get"):  # `_verdict._endings`
                given = values
            case ast.Name(id=name) if name in makers:
                given = call.args
            case _:
                given = []
        for one in given:
            match one:
                case ast.Attribute(value=ast.Name(id="Code"), attr=code):
                    yield code


def makes_a_doubt_of_a_name(node):
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="doubt")):
            return True
    return False


def test_every_code_is_raised_somewhere():
    """A constant that only sets and pages mention is no doubt of any fit."""
    found = {code for path in SOURCE.rglob("*.py") for code in raised(path)}
    assert found == {code.name for code in Code}


def test_a_code_that_only_a_set_mentions_is_not_raised(tmp_path):
    file = tmp_path / "file.py"
    file.write_text("A = {Code.A}\nprint(Code.B, B.of(Code.C))\nCode.D.doubt()\n")
    assert set(raised(file)) == {"D"}
    file.write_text("def f(code):\n    return code.doubt()\n\nf(Code.E)\n")
    assert set(raised(file)) == {"E"}


def test_no_status_is_made_without_a_code():
    """Every status but *converged* is made from doubts, which have codes."""
    without = []
    for path in SOURCE.rglob("*.py"):
        for call in calls(path):
            match call:
                case ast.Call(func=ast.Name(id="Status"), args=[ast.Constant("converged"), _]):
                    pass
                case ast.Call(func=ast.Name(id="Status"), args=args) if len(args) < 3:
                    without.append(f"{path.name}:{call.lineno}")
    assert not without


@pytest.mark.parametrize(
    "code",
    [pytest.param(one, marks=[pytest.mark.slow] if one in SLOW else []) for one in CODES],
)
def test_the_example_prints_what_the_page_says(code, shared):
    for block, expected in BLOCK.findall(sections()[code]):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(block, dict(shared))
        assert out.getvalue().strip() == expected.strip()


def test_a_word_of_verdicts_that_is_no_code_has_a_section():
    """The table says `tail` of a number, and its page links here."""
    page, fit = (path.read_text(encoding="utf-8") for path in (PAGE, PAGE.with_name("fit.md")))
    assert "\n### Tail\n" in page
    assert "(glossary.md#tail)" in fit
    assert f"`no: {TAIL}`" in page


def test_the_most_modes_that_are_kept_are_named():
    text = PAGE.with_name("fit.md").read_text(encoding="utf-8")
    assert _MOST_MODES == 8
    assert "At most eight separate modes are kept" in text
