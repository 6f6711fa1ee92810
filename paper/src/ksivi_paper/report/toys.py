"""The section on the toy problems."""

import numpy as np

from ..cells import ProblemSpec
from ..experiments import TRAINED
from ..figures import curves, densities, style
from ..methods import ROBUST
from . import text
from .index import Entry, RecordIndex
from .page import Page

PROBLEMS = ("banana", "multimodal", "x-shaped")
METHODS = ("ksivi", "ksivi-imq", *TRAINED[1:])
_IN_TABLE = (METHODS[0], ROBUST, *METHODS[1:])
_NAMES = {"kl": "KL(q‖p)", "mmd": "MMD", "sliced_w2": "sliced W₂"}


def entry(problem: str, method: str, field: str, step: int | None = None) -> Entry:
    if method == ROBUST:
        return Entry("robust", problem, field, step=step)
    return Entry("toys", f"{problem}-{method}", field, step=step)


def section(page: Page) -> None:
    page.say("## Toys")
    _histograms(page)
    _curves(page, "kl", 1e-2)
    _curves(page, "mmd")
    _table(page)


def _histograms(page: Page) -> None:
    rows = [_row(page.index, method) for method in ("ksivi", "ksivi-imq")]
    rows = [row for row in rows if row]
    caption = (
        "Histograms of 100,000 draws of KSIVI with the Gaussian kernel and with the IMQ kernel, "
        "and contours of the targets that contain 20, 40, 60, 80 and 95% of their mass (the "
        "paper's Figure 1)."
    )
    page.figure("toys-draws", caption, rows, lambda path: densities.histograms(path, rows))


def _row(index: RecordIndex, method: str) -> list:
    found = [
        (problem, index.shown("toys", f"{problem}-{method}", "histogram")) for problem in PROBLEMS
    ]
    kernel = "IMQ" if method == "ksivi-imq" else "Gaussian"
    return [
        (f"{problem}, {kernel} kernel", ProblemSpec.of(problem).make().target, shown)
        for problem, shown in found
        if shown
    ]


def _curves(page: Page, field: str, linear_below: float | None = None) -> None:
    shown = [_panel(page.index, problem, field) for problem in PROBLEMS]
    shown = [panel for panel in shown if panel.curves]
    which = "the paper's Figure 2" if field == "kl" else "the paper's MMD figure"
    caption = f"{_NAMES[field]} during training: means over the runs, and one standard deviation ({which})."
    draw = lambda path: curves.measures(path, shown, _NAMES[field], linear_below)  # noqa: E731
    page.figure(f"toys-{field}", caption, shown, draw)


def _panel(index: RecordIndex, problem: str, field: str) -> curves.Panel:
    found = [_curve(index, problem, method, field) for method in METHODS]
    floors = [index.floor(entry(problem, method, field)) for method in METHODS]
    floor = next((one for one in floors if one is not None), None)
    return curves.Panel(problem, [curve for curve in found if curve is not None], floor)


def _curve(index: RecordIndex, problem: str, method: str, field: str) -> curves.Curve | None:
    steps = index.steps("toys", f"{problem}-{method}")
    spreads = [index.spread(entry(problem, method, field, step)) for step in steps]
    known = [
        (step, one.mean, one.sd)
        for step, one in zip(steps, spreads, strict=True)
        if one and one.finite
    ]
    if not known:
        return None
    return curves.Curve(method, *(np.asarray(column, float) for column in zip(*known, strict=True)))


def _table(page: Page) -> None:
    rows = []
    for problem in PROBLEMS:
        for method in _IN_TABLE:
            entries = [entry(problem, method, field) for field in _NAMES]
            rows.append(
                [problem, style.label(method), *map(page.ours, entries), page.count(entries[0])]
            )
        floors = [
            page.floor(entry(problem, method, field) for method in METHODS) for field in _NAMES
        ]
        rows.append([problem, "*truth against itself*", *floors, text.NOTHING])
    page.say(
        "At the end of training. The paper has only figures of these, and no numbers to compare "
        "with. KL(q‖p) is estimated from the tenth nearest neighbours among 100,000 draws of "
        "each, and is close to 0, of either sign, for the truth itself. MMD (Gaussian kernel, "
        "median bandwidth) and sliced W₂ are means over ten redraws of 1,000 draws."
    )
    page.table(("target", "method", *_NAMES.values(), "runs"), rows, words=2)
