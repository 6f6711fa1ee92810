"""The table and the figure of `benchmarks.accuracy`, from its records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ksivi.report._figures import new_figure
from ksivi.report._style import save

Record = dict[str, Any]
OURS = "ksivi.fit"
_WORST = 10.0


def table(records: Sequence[Record], methods: Sequence[str]) -> str:
    """Development set and held-out posteriors apart: a line a method, and what our fits said of themselves."""
    parts = []
    for title, held_out in (
        ("development set", False),
        ("written last: when `fit` was final but for the width of its networks", True),
    ):
        rows = [record for record in records if record["held_out"] is held_out]
        if rows:
            parts += [title, *_lines(rows, methods), "", verdicts(rows), ""]
    return "\n".join(parts)


def _lines(records: Sequence[Record], methods: Sequence[str]) -> list[str]:
    """Fits, the share that is accurate, seconds."""
    lines = [
        f"{'method':<12} {'posteriors':>10} {'fits':>5} {'accurate':>9} {'median s':>9} {'most s':>7}"
    ]
    for method in methods:
        rows = [record for record in records if record["method"] == method]
        if rows:
            seconds, share = (
                [row["seconds"] for row in rows],
                np.mean([row["accurate"] for row in rows]),
            )
            names = len({row["case"] for row in rows})
            most, median = max(seconds), np.median(seconds)
            lines.append(
                f"{method:<12} {names:>10} {len(rows):>5} {share:>9.0%} {median:>9.0f} {most:>7.0f}"
            )
    return lines


def verdicts(records: Sequence[Record]) -> str:
    """How often trust was right, in a sentence. A fit that raised an error is neither accurate nor silent."""
    ours = [record for record in records if record["method"] == OURS]
    accurate = [row for row in ours if row["accurate"]]
    silent = [row for row in ours if row.get("trusted") and not row["accurate"]]
    doubted = sum(not row["trusted"] for row in accurate)
    where = ", ".join(sorted({row["case"] for row in silent})) or "none"
    lasting = sum(bool(row["failures_of_many"]) for row in silent)
    return (
        f"{OURS}: of {len(ours)} fits {len(accurate)} are accurate; {len(silent)} are trusted though not accurate "
        f"({where}), {lasting} of them also by 20,000 draws; {doubted} are accurate though not trusted"
    )


def figure(path: Path, records: Sequence[Record], methods: Sequence[str]) -> None:
    """A row a posterior, a column a method: the darker the farther from the truth, with a dot where accurate.

    The distance is the median over seeds, in floors; a dot is as large as the share of seeds that is accurate.
    """
    methods = [
        method for method in methods if any(record["method"] == method for record in records)
    ]
    names = list(dict.fromkeys(record["case"] for record in records))
    cells = {(r["case"], r["method"]): [] for r in records}
    for record in records:
        cells[record["case"], record["method"]].append(record)
    shown = new_figure(figsize=(1.6 + 0.95 * len(methods), 1.2 + 0.24 * len(names)))
    axis = shown.subplots()
    distance = np.array(
        [[_distance(cells.get((name, method), [])) for method in methods] for name in names]
    )
    image = axis.imshow(
        np.log(distance), cmap="Oranges", vmin=0, vmax=np.log(_WORST), aspect="auto"
    )
    for i, name in enumerate(names):
        for j, method in enumerate(methods):
            share = np.mean([row["accurate"] for row in cells.get((name, method), [])] or [0])
            axis.scatter(j, i, s=42 * share, color="#0b5394", linewidths=0)
    axis.set_xticks(
        range(len(methods)), [_heading(records, method) for method in methods], fontsize=8
    )
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    bar = shown.colorbar(image, ax=axis, shrink=0.35, pad=0.02)
    bar.set_ticks(np.log([1, 2, 5, 10]), labels=["1", "2", "5", "≥ 10"], fontsize=8)
    bar.set_label("distance to the truth, in floors", fontsize=8)
    save(shown, path)


def _distance(rows: Sequence[Record]) -> float:
    found = [row.get("distance", _WORST) for row in rows]
    return float(np.clip(np.median(found), 1, _WORST)) if found else float("nan")


def _heading(records: Sequence[Record], method: str) -> str:
    rows = [record for record in records if record["method"] == method]
    share, seconds = (
        np.mean([row["accurate"] for row in rows]),
        np.median([row["seconds"] for row in rows]),
    )
    return f"{method}\n{share:.0%}\n{seconds:.0f} s"
