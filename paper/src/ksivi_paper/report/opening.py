"""The beginning of the page: what it is, how it was made, how long that took, and how to read
it."""

from ..experiments import EXPERIMENTS
from . import text
from .index import CellRecord, RecordIndex
from .notes import RULE
from .page import Page


def section(page: Page) -> None:
    index = page.index
    page.say("# The paper's experiments, run with ksivi")
    if index.preset == "smoke":
        page.say(
            "**A smoke run: a fraction of the work, on smaller problems. Its numbers mean "
            "nothing.**"
        )
    page.say(
        "Every table and figure of *Kernel Semi-Implicit Variational Inference* (ICML 2024), with "
        "our numbers beside the paper's. This page and its figures are made from the records, one "
        "JSON file per cell. The same records give the same files, byte for byte.",
        "```bash\n" + "\n".join(_commands(index.preset)) + "\n```",
        made_with(index),
    )
    _times(page)
    page.say(
        "**How to read the tables.** Numbers are means ± one standard deviation over runs with "
        f"different seeds. {RULE} †: some of the runs diverged; they were stopped, and measured "
        "at their last good parameters. “–”: the paper does not have this number, or the cell "
        "has not run. *Truth against itself* is the floor: the same measure between two samples "
        "of exact draws or of NUTS draws. No method can be expected to be below it. *KSIVI "
        "(robust)* is not in the paper: `ksivi.comparison.RobustPlan`, with one setting for every "
        "problem."
    )


def _commands(preset: str) -> list[str]:
    options = "" if preset == "paper" else f" --preset {preset}"
    return [f"ksivi paper run all{options}", "ksivi paper report"]


def made_with(index: RecordIndex) -> str:
    """Devices, dates and versions."""
    records = list(index.records.values())
    if not records:
        return "There are no records yet."
    devices = _counted(record["device"] for record in records)
    names = sorted({name for record in records for name in record["versions"]}, key=str.lower)
    versions = [
        f"{name} "
        f"{' and '.join(sorted({r['versions'][name] for r in records if name in r['versions']}))}"
        for name in names
    ]
    dates = sorted({record["finished"] for record in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"Trained on {devices}; finished {when}; measured with {', '.join(versions)}."


def _counted(devices) -> str:
    """ "NVIDIA H200 (60 cells), cpu (3 cells)"."""
    found = list(devices)
    return ", ".join(
        f"{name} ({text.count(found.count(name), 'cell')})" for name in sorted(set(found))
    )


def _times(page: Page) -> None:
    rows = [
        _time_row(name, page.index.of(name), _planned(page.index, name)) for name in EXPERIMENTS
    ]
    rows.append(_time_row("**all**", list(page.index.records.values()), len(page.index.cells)))
    page.say(
        "Time on the device: the sum of the wall-clock times of training, including compilation. "
        "Cells that shared the device were slower for it."
    )
    page.table(("experiment", "cells", "finished", "training, s", "training of UIVI, s"), rows)


def _planned(index: RecordIndex, experiment: str) -> int:
    return sum(name == experiment for name, _ in index.cells)


def _time_row(name: str, records: list[CellRecord], planned: int) -> list[str]:
    seconds = {True: 0.0, False: 0.0}
    for record in records:
        seconds[record["spec"].get("plan", {}).get("method") == "uivi"] += record["seconds"][
            "training"
        ]
    return [
        name,
        f"{planned}",
        f"{len(records)}",
        f"{seconds[False]:,.0f}",
        f"{seconds[True]:,.0f}",
    ]
