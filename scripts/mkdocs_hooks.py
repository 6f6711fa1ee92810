"""What the site shows from outside docs/: the pages of results, and their figures."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ("paper", "methods")
TABLE, ROW, CELL = (
    re.compile(r"<table>.*?</table>", re.DOTALL),
    re.compile(r"<tr>.*?</tr>", re.DOTALL),
    re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL),
)
ONE_LINE = re.compile(
    r'<div class="language-text (?=highlight"><pre><span></span><code>[^\n]*\n?</code></pre>)'
)
SENTENCE = 60
"""Characters from which on a cell needs a wide column."""
NUMBER = 10
"""The most characters of a cell in a table of numbers."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Takes pages of results that have not been made yet out of the navigation."""
    config.nav = _without(
        config.nav, {f"results/{name}.md" for name in PAGES if not _page(name).is_file()}
    )
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and the figures that they link to, at the same paths. Nothing is copied into docs/."""
    pages = [name for name in PAGES if _page(name).is_file()]
    figures = [
        one for name in pages for one in sorted((ROOT / "results" / name).glob("figures/*.png"))
    ]
    for path in [*map(_page, pages), *figures]:
        files.append(
            File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to ../results work in the repository; on the site the results lie beside the pages."""
    return (
        markdown.replace("](../results/", "](results/")
        if "/" not in page.file.src_uri
        else markdown
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks tables of numbers, columns that hold sentences, and one line of output, for docs/extra.css."""
    return ONE_LINE.sub('<div class="language-text one-line ', TABLE.sub(_marked, html))


def _marked(table: re.Match[str]) -> str:
    lengths = [
        (column, len(re.sub(r"<[^>]*>", "", cell)))
        for row in ROW.findall(table[0])
        for column, cell in enumerate(CELL.findall(row), start=1)
    ]
    wide = sorted({column for column, length in lengths if length >= SENTENCE})
    mark = f' data-sentences="{" ".join(map(str, wide))}"' if wide else ""
    if all(length <= NUMBER for column, length in lengths if column > 1):
        mark += " data-numbers"
    return table[0].replace("<table>", f"<table{mark}>", 1)


def _page(name: str) -> Path:
    return ROOT / "results" / f"{name}.md"


def _without(nav, missing: set[str]):
    """A navigation, which is nested lists and dicts, without these pages."""
    if isinstance(nav, list):
        kept = [_without(one, missing) for one in nav]
        return [one for one in kept if one is not None]
    if isinstance(nav, dict):
        kept = {title: _without(one, missing) for title, one in nav.items()}
        return {title: one for title, one in kept.items() if one is not None} or None
    return None if nav in missing else nav
