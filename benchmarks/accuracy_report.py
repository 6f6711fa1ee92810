"""The records of `benchmarks.accuracy`, and the tables that are made from them alone."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
OURS, NUTS = "ksivi.fit", ("NUTS", "NUTS, vectorized")
METHODS = (OURS, "Laplace", "Pathfinder", "mean-field", "full rank", "IAF", *NUTS)
WHENS = {
    "cold": "cold: the first fit of a fresh process, no programs on disk",
    "second": "second: another fit in the same process",
    "update": "update: in the same process, from the first fit",
    "again": "again: a fresh process, the programs on disk",
    "other": "other: a fresh process, those of another model on disk",
}
ANSWERS = ("a Gaussian", "a mixture", "a trained sampler")
EARLIER = "earlier"
"""When lines of the older form were made: in a process that had fitted others before."""
_SECTIONS: dict[str, Callable[[Record], bool]] = {
    "development set": lambda row: row["set"] == "development" and not row["held_out"],
    "written last: when `fit` was final but for the width of its networks": lambda row: (
        row["set"] == "development" and row["held_out"]
    ),
    "mixtures of separate modes": lambda row: row["set"] == "mixtures",
    "models whose every score is costly": lambda row: row["set"] == "expensive",
}
_LISTED = 8


def read(path: Path) -> list[Record]:
    """The last line of each fit. Lines of the older form are given what they lack."""
    lines = path.read_text().splitlines() if path.exists() else []
    records = [{"set": "development", "when": EARLIER} | json.loads(line) for line in lines]
    return list({key(record): record for record in records}.values())


def write(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def key(record: Record) -> tuple[str, str, int, str]:
    return record["case"], record["method"], record["seed"], record["when"]


def in_words(record: Record) -> str:
    """One line for the terminal."""
    trust = {True: "trusted", False: "doubted", None: ""}[record.get("trusted")]
    verdict = "accurate" if record["accurate"] else "; ".join(record["failures"])
    where = f"{record['case']:<22} {record['method']:<11} seed {record['seed']} {record['when']:<6}"
    distance = f"{record.get('distance', float('nan')):5.2f} × floor"
    time, answer = f"{record['seconds']:6.1f} s", record.get("answer", "")
    return f"{where} {time}  {distance}  {trust:<8} {verdict}  {answer}"


def of_method(records: Iterable[Record], method: str) -> list[Record]:
    """First fits in fresh processes; of a method that has none, the lines of the older form."""
    rows = [record for record in records if record["method"] == method]
    cold = [row for row in rows if row["when"] == "cold"]
    return cold or [row for row in rows if row["when"] == EARLIER]


def table(records: Sequence[Record], methods: Sequence[str] = METHODS) -> str:
    """Accuracies and verdicts of each group of posteriors, then the times of all."""
    parts = []
    for title, belongs in _SECTIONS.items():
        rows = [record for record in records if belongs(record)]
        if rows:
            parts += [title, *_accuracies(rows, methods), "", verdicts(rows), ""]
    return "\n".join([*parts, *_times(records), "", *_beside_nuts(records)])


def _accuracies(records: Sequence[Record], methods: Sequence[str]) -> list[str]:
    """A line a method: fits, the share that is accurate, seconds."""
    heads = f"{'posteriors':>10} {'fits':>5} {'accurate':>9} {'median s':>9} {'most s':>7}"
    lines = [f"{'method':<12} {heads}"]
    for method in methods:
        rows = of_method(records, method)
        if rows:
            seconds, share = [row["seconds"] for row in rows], _share(rows)
            counts = f"{len({row['case'] for row in rows}):>10} {len(rows):>5} {share:>9.0%}"
            lines.append(f"{method:<12} {counts} {np.median(seconds):>9.1f} {max(seconds):>7.1f}")
    return lines


def _share(rows: Sequence[Record]) -> float:
    return float(np.mean([row["accurate"] for row in rows]))


def silent(rows: Iterable[Record]) -> list[Record]:
    """Trusted though not accurate. A fit that raised an error is not silent."""
    return [row for row in rows if row.get("trusted") and not row["accurate"]]


def verdicts(records: Sequence[Record]) -> str:
    """How often trust was right, in a sentence."""
    ours = of_method(records, OURS)
    accurate, wrong = [row for row in ours if row["accurate"]], silent(ours)
    doubted = sum(not row["trusted"] for row in accurate)
    where = ", ".join(sorted({row["case"] for row in wrong})) or "none"
    lasting = sum(bool(row["failures_of_many"]) for row in wrong)
    return (
        f"{OURS}: of {len(ours)} fits {len(accurate)} are accurate; {len(wrong)} are trusted though not accurate "
        f"({where}), {lasting} of them also by 20,000 draws; {doubted} are accurate though not trusted"
    )


def _times(records: Sequence[Record]) -> list[str]:
    """Seconds of each kind of fit, and of NUTS; those of cold fits also by their answer."""
    ours = [record for record in records if record["method"] == OURS]
    heads = f"{'fits':>5} {'median s':>9} {'90% s':>7} {'most s':>7} {'accurate':>9} {'silent':>7}"
    lines = [f"{'from the start of the process to 1,000 draws':<62} {heads}"]
    for when, title in WHENS.items():
        rows = [row for row in ours if row["when"] == when]
        lines += _time(title, rows)
        if when == "cold":
            for answer in ANSWERS:
                of_it = [row for row in rows if row.get("answer", "").startswith(answer)]
                lines += _time(f"  {answer}", of_it)
    for method in NUTS:
        title = f"NumPyro's {method}, four chains, 500 draws after 500"
        lines += _time(title, [row for row in _cold_nuts(records) if row["method"] == method])
    return lines


def _time(title: str, rows: Sequence[Record]) -> list[str]:
    if not rows:
        return []
    median, most_of, most = np.quantile([row["seconds"] for row in rows], (0.5, 0.9, 1))
    seconds = f"{len(rows):>5} {median:>9.1f} {most_of:>7.1f} {most:>7.1f}"
    return [f"{title:<62} {seconds} {_share(rows):>9.0%} {len(silent(rows)):>7}"]


def _cold_nuts(records: Iterable[Record]) -> list[Record]:
    return [row for row in records if row["method"] in NUTS and row["when"] == "cold"]


def ratios(records: Sequence[Record]) -> dict[str, tuple[float, Record]]:
    """By case: the median of the cold times over seeds, and NUTS's record.

    It is the quicker one of the two forms of NUTS, if that is as accurate.
    """
    cold = [row for row in records if row["method"] == OURS and row["when"] == "cold"]
    slowest_first = sorted(_cold_nuts(records), key=lambda r: (r["accurate"], -r["seconds"]))
    by_case = {row["case"]: row for row in slowest_first}
    return {
        case: (float(np.median([r["seconds"] for r in cold if r["case"] == case])), nuts)
        for case, nuts in by_case.items()
        if any(r["case"] == case for r in cold)
    }


def _beside_nuts(records: Sequence[Record]) -> list[str]:
    """Cold fits as multiples of NUTS's time, and the worst of them."""
    found = ratios(records)
    fair = {case: one for case, one in found.items() if one[1]["accurate"]}
    return [
        *_multiples("cold fit / NUTS", found),
        *_multiples("  where NUTS is accurate", fair),
        *_worst(fair),
    ]


def _multiples(title: str, found: dict[str, tuple[float, Record]]) -> list[str]:
    if not found:
        return []
    many = np.array([seconds / nuts["seconds"] for seconds, nuts in found.values()])
    median, most_of, most = np.quantile(many, (0.5, 0.9, 1))
    spread = f"median {median:.2f}, 90% {most_of:.2f}, most {most:.2f}"
    return [f"{title}: {len(many)} posteriors, {spread}; {np.sum(many > 3)} above 3"]


def _worst(found: dict[str, tuple[float, Record]]) -> list[str]:
    order = sorted(found, key=lambda case: -found[case][0] / found[case][1]["seconds"])[:_LISTED]
    lines = []
    for case in order:
        ours, theirs = found[case][0], found[case][1]["seconds"]
        lines.append(f"    {case:<22} {ours / theirs:5.2f}  ({ours:.1f} s / {theirs:.1f} s)")
    return lines
