"""The glossary: a section about each code, with an example that prints what the page says."""

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


def test_every_code_is_raised_somewhere():
    """A constant that nothing uses is no doubt of any fit."""
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "_codes.py")
    for code in Code:
        assert re.search(rf"Code\.{code.name}\b", text), code


def test_no_status_is_made_without_a_code():
    """Every status but *converged* is made from doubts, which have codes."""
    made = re.compile(r"Status\(\s*\"(not trusted|diverged|interrupted|step limit)\"")
    allowed = {"_verdict.py", "_compare.py"}  # one more doubt on a fit; a method that did not run
    found = {path.name for path in SOURCE.rglob("*.py") if made.search(path.read_text())}
    assert found <= allowed


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
