"""Parts of an HTML page that works offline: the document, tables, and figures as SVG."""

import io
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from ._figures import own_style


class Cell(NamedTuple):
    """A cell with a text, and the number by which its column is sorted."""

    text: str
    value: float


def page(title: str, body: str, refresh_s: int | None = None) -> str:
    """A whole document with its style and script.

    With `refresh_s` the browser reloads it after so many seconds.
    """
    assets = files(__package__) / "assets"
    style, script = (
        (assets / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    again = "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s}">'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{style}</style></head>\n<body><main><h1>{escape(title)}</h1>\n{body}\n</main>"
        f"<script>{script}</script></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(parts) + "</section>\n"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str | float | Cell]], sortable: bool = True
) -> str:
    """A table. Numbers are right-aligned with four digits, and the first column names the row."""
    is_number = [
        all(isinstance(row[i], float | int | Cell) for row in rows) for i in range(len(heads))
    ]
    head = "".join(
        f"<th{_kind(number)}>{escape(name)}</th>"
        for name, number in zip(heads, is_number, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(i, value) for i, value in enumerate(row)) + "</tr>\n" for row in rows
    )
    kind = ' class="sortable"' if sortable else ""
    inside = f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="scroll"><table{kind}>{inside}</table></div>'


def panels(figures: Sequence[tuple[str, Any]], wide: bool = False) -> str:
    """Figures in rows that fit the window. Each figure has a description for screen readers."""
    shown = "".join(f"<figure>{svg(figure, alt)}</figure>\n" for alt, figure in figures)
    return f'<div class="panels{" wide" if wide else ""}">{shown}</div>'


def svg(figure: Any, alt: str) -> str:
    """A figure as SVG inside the page.

    Black becomes the text colour, so that it is readable in dark mode.
    """
    out = io.StringIO()
    # Text stays text. The salt makes identifiers unique on a page, and the same in every run.
    with own_style({"svg.fonttype": "none", "svg.hashsalt": alt, "font.family": "sans-serif"}):
        figure.savefig(
            out, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace("#000000", "currentColor")
    return drawn.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def number(value: float) -> str:
    """A number with at most four digits."""
    if not math.isfinite(value):
        return "—"
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e9 else f"{value:.4g}"


def _kind(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cell(i: int, value: str | float | Cell) -> str:
    if isinstance(value, str):
        return f"<td{' class=name' if i == 0 else ''}>{escape(value)}</td>"
    text, key = value if isinstance(value, Cell) else (number(float(value)), float(value))
    known = repr(float(key)) if math.isfinite(key) else ""
    return f'<td class="number" data-value="{known}">{escape(text)}</td>'
