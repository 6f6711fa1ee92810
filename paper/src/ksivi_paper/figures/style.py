"""What the figures share: one colour and one marker per method, grids of panels, and legends."""

from collections.abc import Callable, Sequence
from typing import Any

from ksivi.report import dress, panels

TRUTH = "#1a1a1a"

METHODS = {
    "ksivi": ("KSIVI", "#0072b2", "o"),
    "ksivi-u": ("KSIVI (u-statistic)", "#56b4e9", "s"),
    "ksivi-imq": ("KSIVI (IMQ)", "#00395c", "P"),
    "sivi-sm": ("SIVI-SM", "#e07b00", "^"),
    "sivi": ("SIVI", "#009e73", "D"),
    "uivi": ("UIVI", "#b07aa1", "v"),
}
"""Name, colour and marker. The colours, after Okabe and Ito, can be told apart by everyone."""


NAMES = {
    "ksivi-stein": "KSIVI (Stein form)",
    "ksivi-combined": "KSIVI (combined)",
    "kpg": "KPG",
    "kpg-is": "KPG-IS",
    "amortized-svgd": "amortized SVGD",
    "denoised-score": "denoised score",
    "pvi": "PVI",
    "aisivi": "AISIVI",
    "ksivi-robust": "KSIVI (robust)",
} | {method: name for method, (name, _, _) in METHODS.items()}
"""The names of all methods, also of those that no curve shows."""


def label(method: str) -> str:
    return NAMES[method]


def colour(method: str) -> str:
    return METHODS[method][1]


def marker(method: str) -> str:
    return METHODS[method][2]


def method_grid(
    rows: Sequence[tuple[str, Sequence[tuple]]],
    height: float,
    draw: Callable[..., None],
    **options: Any,
) -> tuple[Any, Any]:
    """A figure with one row of panels per title, and one panel per method.

    **Arguments:**

    - `rows`: a title, and for each method its name and the other arguments of `draw(axis, name,
        ...)`.
    - `height`: the height of a row in inches.
    """
    figure, axes = panels(
        len(rows), max(len(row) for _, row in rows), height * len(rows) + 0.4, **options
    )
    for i, (line, (title, row)) in enumerate(zip(axes, rows, strict=True)):
        for axis, (method, *shown) in zip(line, row, strict=False):
            draw(axis, method, *shown)
            dress(axis, label(method) if i == 0 else "")
        for axis in line[len(row) :]:
            axis.set_visible(False)
        line[0].set_ylabel(title, fontsize=10)
    return figure, axes


def legend(figure: Any, axes: Sequence[Any], columns: int = 6) -> None:
    """One legend below all panels. A name that is in several panels is there once."""
    entries: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    if entries:
        place = {"loc": "outside lower center", "ncols": min(columns, len(entries))}
        figure.legend(entries.values(), entries.keys(), frameon=False, fontsize=9, **place)


def plain_logs(axis: Any) -> None:
    """A logarithmic axis of few decades, with ticks at 1, 2 and 5 in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
