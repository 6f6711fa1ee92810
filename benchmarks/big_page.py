"""The part of `docs/benchmarks.md` about large posteriors, from the records of `benchmarks.big`."""

from collections.abc import Callable
from pathlib import Path

from .accuracy_report import Record
from .big import OURS, _median, records
from .big_names import NETWORKS, ON_DISK

TITLES = {
    "logistic-100000x20": "logistic, 100,000 rows × 20",
    "logistic-1000000x20": "logistic, 1,000,000 × 20",
    "covertype-581012": "logistic, 581,012 × 54, rare columns",
    ON_DISK: "logistic, 47.6 million rows on disk",
    "negative-binomial-centred-100000x300": "negative binomial, 100,000 rows, d = 605, centred",
    "negative-binomial-100000x300": "the same, non-centred",
    "poisson-300": "Poisson groups, d = 302, non-centred",
    "poisson-centred-300": "the same, centred",
    "poisson-1000": "Poisson groups, d = 1,002, non-centred",
    "poisson-centred-1000": "the same, centred",
    "poisson-10000": "Poisson groups, d = 10,002, non-centred",
    "poisson-centred-10000": "the same, centred",
    "volatility-1000": "stochastic volatility, d = 1,003, non-centred",
    "volatility-centred-1000": "the same, centred",
    "horseshoe-200x400": "horseshoe regression, 200 × 400, d = 802",
    **{f"network-{name}": f"network of the paper, {name}" for name in NETWORKS},
}
DEVICES = {"cpu": "Two CPU cores", "cuda": "One H200"}

_TEXT = """## Large posteriors

`python -m benchmarks.big` fits posteriors with many rows or many parameters, each in a fresh process on two cores or on
one GPU. Seconds count from the start of the process to 1,000 draws, import and compilation included. GiB are peak
resident memory; with rows on disk, without the pages of the mapped file. "Accurate" counts the seeds whose draws fulfil
the conditions in `benchmarks/criterion.py` against the truth, and "trusted" the seeds that `fit` trusts. The truths
come from quadrature or from importance weights; a run whose truth was not available is "not compared". A network has no
truth; the column has the negative log-likelihood of its predictions.

These times are of several runs on x86 servers; that of the network on yacht is of an ARM machine. In some runs up to
eight fits ran beside one another, each on two cores of its own, and took up to one and a half times as long as alone.

"""
_MOST_FLOORS = 2
"""The largest distance of accurate draws, as a multiple of the distance of exact draws."""
_OTHERS = """### Compared with other methods

The seconds after which 1,000 draws were accurate. Otherwise the distance to the truth that was left at the end or at
the time limit, as a multiple of the distance of exact draws. Where that is small (at most 2), the condition that
failed, such as the worst error of a log width.

"""


def large_posteriors(path: Path, table: Callable[[list[str], list[list[str]]], str]) -> str:
    """The section, or nothing without records.

    **Arguments:**

    - `table`: makes a table from its heads and its rows.
    """
    rows = records(path)
    parts = [
        f"{title}:\n\n" + table(["posterior", "seconds", "GiB", "accurate", "trusted"], ours)
        for platform, title in DEVICES.items()
        if (ours := _ours([row for row in rows if row["platform"] == platform]))
    ]
    if not parts:
        return ""
    others = [row for row in rows if row["method"] != OURS]
    return _TEXT + "\n".join(parts) + "\n" + (_beside(rows, others, table) if others else "")


def _ours(rows: list[Record]) -> list[list[str]]:
    found = []
    for name, title in TITLES.items():
        some = [row for row in rows if (row["problem"], row["method"]) == (name, OURS)]
        if some:
            seconds = _median([row["seconds"] for row in some])
            gib = _median([row.get("anonymous_gib", row["gib"]) for row in some])
            trusted = sum(row.get("trusted") is True for row in some)
            counts = [_accurate(some), f"{trusted} of {len(some)}"]
            found.append([title, f"{seconds:.0f}", f"{gib:.1f}", *counts])
    return found


def _accurate(some: list[Record]) -> str:
    scores = [row["nll"] for row in some if "nll" in row]
    if scores:
        return f"{_median(scores):.3f} nats"
    known = [row["accurate"] for row in some if row["accurate"] is not None]
    return f"{sum(known)} of {len(known)}" if known else "not compared"


def _beside(rows: list[Record], others: list[Record], table: Callable) -> str:
    methods = [OURS, *dict.fromkeys(row["method"] for row in others)]
    platform = others[0]["platform"]
    lines = []
    for name, title in TITLES.items():
        some = [row for row in rows if (row["problem"], row["platform"]) == (name, platform)]
        if any(row["method"] != OURS for row in some):
            cells = [[row for row in some if row["method"] == method] for method in methods]
            lines.append([title, *(_reached(cell) if cell else "" for cell in cells)])
    limit = max(row["limit_s"] for row in others)
    return f"{_OTHERS}{DEVICES[platform]}, {limit:.0f} s at most:\n\n" + table(
        ["posterior", *methods], lines
    )


def _reached(some: list[Record]) -> str:
    """The median of the seconds to accuracy, or the distance that is left."""
    if str(some[0].get("status", "")).startswith("refused"):
        return "refused"
    first = [row.get("accurate_s") for row in some]
    if all(seconds is not None for seconds in first):
        return f"{_median(first):.0f} s"
    left = [row["distance"] for row in some if row.get("distance") is not None]
    if not left:
        return "no draws"
    is_far = _median(left) > _MOST_FLOORS
    return f"{_median(left):.1f}" if is_far else next(iter(some[0]["failures"]))
