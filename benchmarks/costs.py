"""What draws cost by dimension and by rows: the tables of `docs/when.md` and `docs/costs.png`.

    python -m benchmarks.costs

They are made from benchmarks/records/big.jsonl and benchmarks/records/accuracy.jsonl alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ksivi.report._figures import dress
from ksivi.report._style import FAINT, panels, save

from . import big
from .accuracy_report import NUTS, OURS, Record, of_method, read
from .big_names import NETWORKS, ON_DISK

RECORDS, DOCS = Path("benchmarks/records"), Path("docs")
PAGE, FIGURE = DOCS / "when.md", DOCS / "costs.png"
BEGIN, END = "<!-- tables: python -m benchmarks.costs -->\n", "<!-- end of tables -->\n"
_TITLES = {
    "logistic-100000x20": ("logistic regression", 100_000),
    "logistic-1000000x20": ("logistic regression", 1_000_000),
    "covertype-581012": ("logistic regression with rare columns", 581_012),
    ON_DISK: ("logistic regression, rows on disk", 47_600_000),
    "negative-binomial-centred-100000x300": ("negative binomial groups, centred", 100_000),
    "negative-binomial-100000x300": ("negative binomial groups, non-centred", 100_000),
    "poisson-300": ("Poisson groups, non-centred", None),
    "poisson-centred-300": ("Poisson groups, centred", None),
    "poisson-1000": ("Poisson groups, non-centred", None),
    "poisson-centred-1000": ("Poisson groups, centred", None),
    "poisson-10000": ("Poisson groups, non-centred", None),
    "poisson-centred-10000": ("Poisson groups, centred", None),
    "volatility-1000": ("stochastic volatility, non-centred", None),
    "volatility-centred-1000": ("stochastic volatility, centred", None),
    "horseshoe-200x400": ("horseshoe regression", None),
    **{f"network-{name}": (f"neural network, {name}", None) for name in NETWORKS},
}
"""For each posterior of `benchmarks.big`: what it is, and its rows if it has many."""
_FIT, _NUTS = "#0072b2", "#d55e00"
_SMALL = ("NUTS", "full rank", "IAF", "mean-field", "Laplace", "Pathfinder")
_SPELLED = {
    "full rank": "full-rank Gaussian",
    "mean-field": "mean-field Gaussian (ADVI)",
    "IAF": "normalizing flow (IAF)",
}


class Cost(NamedTuple):
    """What one posterior costs: medians over seeds, and None where there is no record.

    **Attributes:**

    - `nuts`: seconds until its draws were accurate, or None.
    - `limit`: seconds after which NUTS was stopped without accurate draws, or None.
    """

    name: str
    dim: int
    rows: int | None
    fit: float | None
    gpu: float | None
    trusted: str
    nuts: float | None
    limit: float | None


def costs(records: Sequence[Record]) -> list[Cost]:
    """One for each posterior with a fit on two cores, by rows and then by dimension."""
    found = [_cost(name, [row for row in records if row["problem"] == name]) for name in _TITLES]
    return sorted((one for one in found if one), key=lambda one: (one.rows or 0, one.dim))


def _cost(name: str, records: Sequence[Record]) -> Cost | None:
    ours = _of(records, OURS, "cpu")
    if not ours:
        return None
    nuts = [row for method in NUTS for row in _of(records, method, "cpu")]
    done = [row["accurate_s"] for row in nuts if row.get("accurate_s") is not None]
    trusted = sum(row.get("trusted") is True for row in ours)
    return Cost(
        name,
        ours[0]["dim"],
        _TITLES[name][1],
        _seconds(ours),
        _seconds(_of(records, OURS, "cuda")),
        f"{trusted} of {len(ours)}",
        float(np.median(done)) if nuts and len(done) == len(nuts) else None,
        max(row["limit_s"] for row in nuts) if nuts and not done else None,
    )


def _of(records: Sequence[Record], method: str, platform: str) -> list[Record]:
    return [row for row in records if (row["method"], row["platform"]) == (method, platform)]


def _seconds(records: Sequence[Record]) -> float | None:
    return float(np.median([row["seconds"] for row in records])) if records else None


def tables(large: Sequence[Record], small: Sequence[Record]) -> str:
    """Both tables, as Markdown."""
    return "\n".join([*_large(costs(large)), "", *_small(small), ""])


def _large(found: Sequence[Cost]) -> list[str]:
    heads = "| posterior | parameters | rows | `fit`, s | trusted | NUTS, s | `fit` on an H200, s |"
    lines = [heads, "|---|---|---|---|---|---|---|"]
    for one in found:
        nuts = "" if one.nuts is None else f"{one.nuts:.0f}"
        nuts = nuts if one.limit is None else f"not in {one.limit:.0f}"
        title, rows = _TITLES[one.name]
        sizes = (f"{one.dim:,}", "" if rows is None else f"{rows:,}")
        cells = (title, *sizes, _whole(one.fit), one.trusted, nuts, _whole(one.gpu))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _whole(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.0f}"


def _small(records: Sequence[Record]) -> list[str]:
    lines = ["| method | accurate | median s | most s |", "|---|---|---|---|"]
    for method in _SMALL:
        rows = of_method(records, method)
        seconds = [row["seconds"] for row in rows]
        count = f"{sum(row['accurate'] for row in rows)} of {len(rows)}"
        times = f"{np.median(seconds):.0f} | {max(seconds):.0f}"
        lines.append(f"| {_SPELLED.get(method, method)} | {count} | {times} |")
    return lines


def draw(path: Path, found: Sequence[Cost]) -> None:
    """Seconds by dimension, where rows are few, and by rows."""
    figure, (axes,) = panels(1, 2, 4.2)
    few = [one for one in found if one.rows is None]
    many = [one for one in found if one.rows is not None]
    _scatter(axes[0], few, [one.dim for one in few])
    _scatter(axes[1], many, [one.rows for one in many])
    dress(axes[0], "by parameters (few rows)")
    dress(axes[1], "by rows (20 to 605 parameters)")
    axes[0].set(xlabel="parameters", ylabel="seconds, two CPU cores")
    axes[1].set(xlabel="rows of data")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    save(figure, path)


def _scatter(axis: Any, found: Sequence[Cost], at: Sequence[int | None]) -> None:
    """Filled where every seed is trusted. A line leads to NUTS, a triangle where it was stopped."""
    for one, x in zip(found, at, strict=True):
        done, _, asked = one.trusted.partition(" of ")
        fill = _FIT if done == asked else "white"
        axis.scatter(x, one.fit, s=46, facecolors=fill, edgecolors=_FIT, linewidths=1.4, zorder=3)
        theirs = one.nuts or one.limit
        if theirs is not None:
            axis.plot([x, x], [one.fit, theirs], color=FAINT, linewidth=1, zorder=1)
        if one.nuts is not None:
            axis.scatter(x, one.nuts, s=46, marker="s", color=_NUTS, zorder=2)
        if one.limit is not None:
            axis.scatter(x, one.limit, s=60, marker="^", facecolors="white", edgecolors=_NUTS)
    for label, options in {
        "ksivi.fit, trusted": {"color": _FIT},
        "ksivi.fit, doubted": {"facecolors": "white", "edgecolors": _FIT},
        "NUTS, accurate draws": {"marker": "s", "color": _NUTS},
        "NUTS, stopped before": {"marker": "^", "facecolors": "white", "edgecolors": _NUTS},
    }.items():
        axis.scatter([], [], s=46, label=label, **options)
    ticks = [5, 10, 20, 50, 100, 200, 500]
    axis.set(xscale="log", yscale="log", ylim=(5, 700))
    axis.set_yticks(ticks, [str(tick) for tick in ticks])
    axis.set_yticks([], minor=True)
    axis.grid(color=FAINT, alpha=0.3, linewidth=0.6)


def page(text: str, made: str) -> str:
    """The page with new tables between its two marks."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + made + "\n" + END + rest.partition(END)[2]


def main() -> None:
    large, small = big.records(RECORDS / "big.jsonl"), read(RECORDS / "accuracy.jsonl")
    draw(FIGURE, costs(large))
    PAGE.write_text(page(PAGE.read_text(), tables(large, small)))


if __name__ == "__main__":
    main()
