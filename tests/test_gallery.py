"""The gallery: every page runs as printed, in a process of its own, and has its sections, figures and measurements."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import gallery
from benchmarks.gallery_pages import (
    APPLIES,
    BESIDE,
    FOLDER,
    MEASURED,
    Page,
    agree,
    pages,
    with_measured,
)

PAGES = pages()
INDEX = (FOLDER / "index.md").read_text()
SLOW = {"gaussian-process", "mixture", "ode", "pymc-bambi"}
"""Pages that take more than 20 s on two slow cores."""
OTHERS = ("numpyro", "matplotlib", "arviz", "pymc", "bambi", "blackjax", "pandas", "scipy")


def of_pages(*, marked=False):
    """A parameter for each page; slow ones get their mark if they are run."""
    for page in PAGES:
        marks = [pytest.mark.slow] if marked and page.name in SLOW else []
        yield pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", list(of_pages(marked=True)))
def test_a_page_runs_as_printed(page, tmp_path):
    for package in OTHERS:
        if re.search(rf"^(?:import|from) {package}\b", page.text, re.MULTILINE):
            pytest.importorskip(package, reason=f"{package} is not installed")
    found = gallery.run(page, tmp_path, short=True)
    assert not gallery.faults(page, found, tmp_path, short=True)


@pytest.mark.parametrize("page", list(of_pages()))
def test_a_page_has_its_sections(page):
    assert len(page.headings) >= 6
    assert page.headings[-2:] == [BESIDE, APPLIES]
    words = len(re.sub(r"```.*?```|<!--.*?-->", "", page.text, flags=re.DOTALL).split())
    assert 300 <= words <= 1_100, words


@pytest.mark.parametrize("page", list(of_pages()))
def test_a_page_has_its_figures(page):
    assert len(page.figures) >= 2
    for name in page.figures:
        assert name.startswith(f"{page.name}-")
        assert (FOLDER / name).stat().st_size > 1_000, name
        assert any(f'savefig("{name}")' in block.code for block in page.blocks()), name
    assert (FOLDER / "thumbnails" / f"{page.name}.png").is_file()


@pytest.mark.parametrize("page", list(of_pages()))
def test_a_page_shows_what_was_measured(page):
    record = json.loads(gallery.RECORD.read_text())[page.name]
    shown = MEASURED.search(page.text)
    assert shown is not None
    assert shown[2] == gallery.sentences(record)


def test_every_figure_belongs_to_a_page():
    shown = {name for page in PAGES for name in page.figures}
    assert {path.name for path in FOLDER.glob("*.png")} == shown


@pytest.mark.parametrize("page", list(of_pages()))
def test_the_index_lists_every_page(page):
    assert f"]({page.name}.md)" in INDEX
    assert f"](thumbnails/{page.name}.png)" in INDEX


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("P = 0.44\n", "P = 0.46\n"),
        ("12 and −3.1", "12 and -3.2"),
        ("a  b\n c", "a b c"),
        ("took 3.2 s, then done", "took … s, then done"),
        ("10,250 rows", "10,000 rows"),
    ],
)
def test_noise_is_no_difference(printed, shown):
    assert agree(printed, shown)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("P = 0.44", "P = 0.49"),
        ("3 modes found", "6 modes found"),
        ("not trusted", "trusted"),
        ("1.5 and more", "1.5"),
        ("one\ntwo", "o…wo"),
        ("P = 0.4 0.5", "P = 0.4"),
    ],
)
def test_differences_are_seen(printed, shown):
    assert not agree(printed, shown)


TINY = """# A page

## The data

```python
from pathlib import Path

two = 1 + 1
print("two is", two)
Path("tiny-data.png").write_bytes(b"")
```

```text
two is 2
```

![Data](tiny-data.png)

## Comparison with NUTS

```python
print("three is", two + 1)
```

```text
three is 3
```

## When this applies to you

Always.
"""


@pytest.mark.parametrize(
    ("wrong", "right", "fault"),
    [
        ("", "", None),
        ("two is 2", "two is 9", "line 5 prints\ntwo is 2"),
        ("![Data](tiny-data.png)", "", "tiny-data.png is saved and not shown"),
        ("three is 3", "three is 8", "line 21 prints\nthree is 3"),
        ("1 + 1", "1 + one", "line 8"),
    ],
    ids=["right", "number", "figure", "beside", "error"],
)
def test_the_runner_finds_what_is_wrong(wrong, right, fault, tmp_path):
    path, folder = tmp_path / "tiny.md", tmp_path / "run"
    path.write_text(TINY.replace(wrong, right) if wrong else TINY)
    folder.mkdir()
    page = Page(path)
    found = gallery.run(page, folder, short=False)
    faults = gallery.faults(page, found, folder, short=False)
    assert not faults if fault is None else len(faults) == 1 and fault in faults[0]


def test_the_short_form_leaves_a_section_out(tmp_path):
    (tmp_path / "tiny.md").write_text(TINY)
    page = Page(tmp_path / "tiny.md")
    assert [block.section for block in page.blocks()] == ["The data", BESIDE]
    assert [block.output for block in page.blocks(short=True)] == ["two is 2\n"]


def test_printed_texts_and_measurements_are_put_in_place(tmp_path):
    (tmp_path / "tiny.md").write_text(TINY)
    page = Page(tmp_path / "tiny.md")
    assert page.with_printed(["two is 2", "three is 3 \n"]) == TINY
    assert page.with_printed(["2", "3"]) == TINY.replace("two is 2", "2").replace("three is 3", "3")
    text = with_measured(TINY, "quick")
    assert "three is 3\n```\n\n<!-- measured -->\nquick\n<!-- /measured -->\n\n## When" in text
    assert with_measured(text, "slow") == text.replace("quick", "slow")
