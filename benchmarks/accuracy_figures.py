"""The figures of `benchmarks.accuracy`, from its records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ksivi.report._figures import dress, new_figure, own_style
from ksivi.report._style import FAINT, save

from .accuracy_report import ANSWERS, METHODS, OURS, Record, of_method, ratios

_WORST = 10.0
_COLORS = dict(zip(ANSWERS, ("#0072b2", "#e69f00", "#d55e00"), strict=True))


@own_style()
def accuracies(path: Path, records: Sequence[Record], methods: Sequence[str] = METHODS) -> None:
    """A row a posterior, a column a method: the darker the farther from the truth, with a dot where accurate.

    The distance is the median over seeds, in floors; a dot is as large as the share of seeds that is accurate.
    """
    methods = [method for method in methods if of_method(records, method)]
    names = list(dict.fromkeys(record["case"] for record in records))
    cells: dict[tuple[str, str], list[Record]] = {(n, m): [] for n in names for m in methods}
    for method in methods:
        for record in of_method(records, method):
            cells[record["case"], method].append(record)
    shown = new_figure(figsize=(1.6 + 0.95 * len(methods), 1.2 + 0.24 * len(names)))
    axis = shown.subplots()
    distance = np.array([[_distance(cells[name, method]) for method in methods] for name in names])
    image = axis.imshow(
        np.log(distance), cmap="Oranges", vmin=0, vmax=np.log(_WORST), aspect="auto"
    )
    for (name, method), rows in cells.items():
        share = np.mean([row["accurate"] for row in rows] or [0])
        at = methods.index(method), names.index(name)
        axis.scatter(*at, s=42 * share, color="#0b5394", linewidths=0)
    headings = [_heading(of_method(records, method)) for method in methods]
    axis.set_xticks(range(len(methods)), headings, fontsize=8)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    _bare(axis)
    bar = shown.colorbar(image, ax=axis, shrink=0.35, pad=0.02)
    bar.set_ticks(np.log([1, 2, 5, 10]), labels=["1", "2", "5", "≥ 10"], fontsize=8)
    bar.set_label("distance to the truth, in floors", fontsize=8)
    save(shown, path)


def _bare(axis: Any) -> None:
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)


def _distance(rows: Sequence[Record]) -> float:
    found = [row.get("distance", _WORST) for row in rows]
    return float(np.clip(np.median(found), 1, _WORST)) if found else float("nan")


def _heading(rows: Sequence[Record]) -> str:
    seconds = np.median([row["seconds"] for row in rows])
    share = np.mean([row["accurate"] for row in rows])
    return f"{rows[0]['method']}\n{share:.0%}\n{seconds:.0f} s"


@own_style()
def times(path: Path, records: Sequence[Record]) -> None:
    """A dot a posterior: seconds of a cold fit against those of NUTS, hollow where NUTS is not accurate."""
    found = ratios(records)
    shown = new_figure(figsize=(5.8, 5.2))
    axis = shown.subplots()
    _guides(axis, [x for seconds, nuts in found.values() for x in (seconds, nuts["seconds"])])
    for answer, color in _COLORS.items():
        cases = [case for case in found if _answer(records, case) == answer]
        _dots(axis, [found[case] for case in cases], color, answer)
    _name_the_slow(axis, found)
    axis.set_xlabel("seconds of NumPyro's NUTS")
    axis.set_ylabel("seconds of ksivi.fit, cold")
    axis.scatter([], [], s=34, facecolors="none", edgecolors=FAINT, label="NUTS is not accurate")
    shown.legend(frameon=False, fontsize=9, loc="outside upper center", ncols=4, handletextpad=0.1)
    dress(axis, "")
    save(shown, path)


def _answer(records: Sequence[Record], case: str) -> str:
    """The most frequent answer over the seeds; without one, as for an error, the last of the ladder."""
    said = [row.get("answer", "") for row in of_method(records, OURS) if row["case"] == case]
    counts = [sum(one.startswith(answer) for one in said) for answer in ANSWERS]
    return ANSWERS[int(np.argmax(counts))] if any(counts) else ANSWERS[-1]


def _guides(axis: Any, seconds: Sequence[float]) -> None:
    """Log axes of one scale, and the lines on which a fit takes as long as NUTS, and three times as long."""
    low, high = 0.8 * min(seconds), 1.25 * max(seconds)
    for times_as_long, style in ((1, "-"), (3, "--")):
        axis.plot(
            [low, high], [times_as_long * low, times_as_long * high], style, color=FAINT, lw=1
        )
        at = min(high, high / times_as_long)
        axis.annotate(
            f"{times_as_long}×",
            (at, times_as_long * at),
            xytext=(-4, -12),
            textcoords="offset points",
            color=FAINT,
            fontsize=8,
        )
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    ticks = [t for t in (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1_000) if low < t < high]
    for set_ticks in (axis.set_xticks, axis.set_yticks):
        set_ticks(ticks, [f"{t}" for t in ticks])
        set_ticks([], minor=True)
    axis.grid(color="#eeeeee", linewidth=0.6)
    axis.set_axisbelow(True)


def _dots(axis: Any, found: Sequence[tuple[float, Record]], color: str, label: str) -> None:
    if found:
        at = [nuts["seconds"] for _, nuts in found], [seconds for seconds, _ in found]
        fill = [color if nuts["accurate"] else "white" for _, nuts in found]
        axis.scatter(*at, s=34, facecolors=fill, edgecolors=color, linewidths=1.2)
        axis.scatter([], [], s=34, color=color, label=label)


def _name_the_slow(axis: Any, found: dict[str, tuple[float, Record]]) -> None:
    """Names beside those that take more than three times as long as an accurate NUTS."""
    for case, (seconds, nuts) in found.items():
        if nuts["accurate"] and seconds > 3 * nuts["seconds"]:
            at = nuts["seconds"], seconds
            axis.annotate(case, at, xytext=(5, 3), textcoords="offset points", fontsize=7)
