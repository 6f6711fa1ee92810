"""A run to and from a snapshot: what the host and the next step need, and what was recorded."""

import dataclasses
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Array

from ._autopsy import NotFinite
from ._checkpoints import Snapshot, arrays_of, tree_like
from ._step import TrainState
from ._trouble import Trouble

if TYPE_CHECKING:
    from ._host import Run

_RECORDS = "records."


class Progress(NamedTuple):
    """How far a run is at the end of a chunk: kept as one, so that an interrupt finds all of it or none."""

    state: TrainState
    anchor: TrainState
    anchor_rate: Array | None
    step: int
    limits: list[int]
    troubles: tuple[Trouble | None, ...]
    num_chunks: int


def progress_of(run: "Run") -> Progress:
    rate, troubles, chunks = run.anchor_problem.learning_rate, tuple(run.troubles), len(run.records["loss"])
    return Progress(run.state, run.anchor, rate, run.step, run.limits.tolist(), troubles, chunks)


def snapshot_of(run: "Run", mark: Progress) -> Snapshot:
    """The run as it was at the mark."""
    arrays = arrays_of((mark.state, mark.anchor, mark.anchor_rate), "state")
    if mark.num_chunks:
        done = {name: chunks[: mark.num_chunks] for name, chunks in run.records.items()}
        arrays |= {_RECORDS + name: np.concatenate(chunks, axis=1) for name, chunks in done.items()}
    facts = {
        "first": run.first,
        "seconds": time.perf_counter() - run.started,
        "limits": mark.limits,
        "troubles": [None if one is None else dataclasses.asdict(one) for one in mark.troubles],
        "seen": {i: dataclasses.asdict(one) for i, one in run.seen.items()},
        "memo": dict(run.memo),
    }
    return Snapshot(mark.step, run.identity, facts, arrays)


def restore(run: "Run", snapshot: Snapshot) -> None:
    """The run, which was made anew, goes on where another process was."""
    arrays, facts = snapshot.arrays, snapshot.facts
    like = (run.state, run.anchor, run.anchor_problem.learning_rate)
    run.state, run.anchor, rate = tree_like(like, "state", arrays)
    run.anchor_problem = dataclasses.replace(run.problem, learning_rate=rate)
    recorded = {name.removeprefix(_RECORDS): a for name, a in arrays.items() if name.startswith(_RECORDS)}
    run.records |= {name: [values] for name, values in recorded.items()}
    run.step, run.first, run.limits = snapshot.step, facts["first"], np.array(facts["limits"])
    run.troubles = [None if one is None else Trouble(**one) for one in facts["troubles"]]
    run.seen = {int(i): NotFinite(**one) for i, one in facts["seen"].items()}
    run.memo = facts["memo"]
    run.started = time.perf_counter() - facts["seconds"]
