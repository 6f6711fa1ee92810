"""The section of the conditioned diffusion."""

from typing import Any

import numpy as np

from .. import published
from ..experiments import DIMS, TRAINED
from ..figures import curves, style, trajectories
from ..methods import ROBUST
from . import text
from .index import Entry, RecordIndex
from .page import Page

DRIFTS = {"released": "the released code's drift", "paper": "the paper's drift"}


def entry(dim: int, drift: str, method: str) -> Entry:
    """A number of the tables. The paper's numbers are for the released code's drift."""
    if method == ROBUST:
        return Entry("robust", f"diffusion-{dim}")
    known = published.DIFFUSION[method][DIMS.index(dim)] if drift == "released" else None
    return Entry("diffusion", cell(dim, drift, method), paper=known)


def cell(dim: int, drift: str, method: str) -> str:
    return f"{dim}-{drift}-{method}"


def section(page: Page) -> None:
    page.say("## Conditioned diffusion")
    page.say(
        "The observations are the authors'. The drift is 10x(1 − x²)/(1 + x²) in the released "
        "code and 10x(1 − x²) in the paper. These are two posteriors, each with its own truth "
        "from NUTS. The paper's numbers are for the first. UIVI takes much longer than the "
        "others, and runs only there."
    )
    dims = _dims(page.index)
    for drift, name in DRIFTS.items():
        _table(page, dims, drift, name)
    _seconds(page, dims)
    _trajectories(page, 100 if 100 in dims else dims[0])
    _losses(page, dims)


def _dims(index: RecordIndex) -> list[int]:
    """The dimensions of the preset."""
    return [dim for dim in DIMS if index.expects("diffusion", cell(dim, "released", "ksivi"))]


def _table(page: Page, dims: list[int], drift: str, name: str) -> None:
    methods: list[str] = [
        method
        for method in TRAINED
        if page.index.expects("diffusion", cell(dims[0], drift, method))
    ]
    if drift == "released":
        methods.insert(1, ROBUST)
    entries = {method: [entry(dim, drift, method) for dim in dims] for method in methods}
    rows = [
        [style.label(method), *(part for one in row for part in page.beside(one))]
        for method, row in entries.items()
    ]
    floors = [page.floor(column) for column in zip(*entries.values(), strict=True)]
    rows.append(
        ["*truth against itself*", *(part for floor in floors for part in (floor, text.NOTHING))]
    )
    page.say(
        f"Sliced W₂ with {name}, over {page.runs(one for row in entries.values() for one in row)}."
    )
    page.table(("method", *text.with_paper(f"d = {dim}" for dim in dims)), rows)


def _seconds(page: Page, dims: list[int]) -> None:
    page.say(
        "Seconds for 10,000 steps with the released drift, without compilation. Our times are for "
        "all runs of a cell together (their number follows ×), on the device named above, which "
        "cells may have shared. The paper's times are for one run on a 3.2 GHz CPU."
    )
    rows = [[style.label(method), *_times(page.index, dims, method)] for method in TRAINED]
    page.table(("method", *text.with_paper(f"d = {dim}" for dim in dims)), rows)


def _times(index: RecordIndex, dims: list[int], method: str) -> list[str]:
    times = []
    for dim in dims:
        record = index.get("diffusion", cell(dim, "released", method))
        known = published.DIFFUSION_SECONDS.get(method)
        times.append(_time(record))
        times.append(text.fixed(known[DIMS.index(dim)] if known else None, 2))
    return times


def _time(record: dict[str, Any] | None) -> str:
    if record is None:
        return text.NOTHING
    return f"{text.number(1e4 * record['seconds']['a_step'], 2)} (×{len(record['status'])})"


def _trajectories(page: Page, dim: int) -> None:
    rows = [(name, _bands(page.index, dim, drift)) for drift, name in DRIFTS.items()]
    rows = [(name, row) for name, row in rows if row]
    caption = (
        f"The conditioned diffusion at d = {dim}: means and 95% intervals of 1,000 draws of each "
        "method in colour, and of the truth in black."
    )
    page.figure(
        "diffusion-paths", caption, rows, lambda path: trajectories.trajectories(path, rows)
    )


def _bands(index: RecordIndex, dim: int, drift: str) -> list[tuple[str, dict, dict]]:
    found = [
        (method, index.shown("diffusion", cell(dim, drift, method), "band")) for method in TRAINED
    ]
    return [
        (m, one["draws"], one["truth"])
        for m, one in found
        if one and None not in one["draws"]["mean"]
    ]


def _losses(page: Page, dims: list[int]) -> None:
    rows = [(f"d = {dim}", _loss_row(page.index, dim)) for dim in dims]
    rows = [(name, row) for name, row in rows if row]
    caption = (
        "Training losses with the released drift: one line per run, means over 200 intervals of "
        "the steps. The methods have different losses, so their heights cannot be compared."
    )
    page.figure("diffusion-losses", caption, rows, lambda path: curves.losses(path, rows))


def _loss_row(index: RecordIndex, dim: int) -> list[tuple[str, int, np.ndarray]]:
    found = [(method, index.get("diffusion", cell(dim, "released", method))) for method in TRAINED]
    return [
        (m, r["spec"]["plan"]["num_steps"], np.asarray(r["numbers"]["losses"], float))
        for m, r in found
        if r
    ]
