"""Converts progress to and from snapshots on disk."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..results import NotFinite
from ._checkpoints import Checkpoints, Snapshot, arrays_of, tree_like
from ._identity import digest
from ._task import Progress
from ._trouble import Trouble

_RECORDS, _KEPT = "records.", "kept"


def restored(
    checkpoints: Checkpoints | None, progress: Progress, arguments: dict[str, Any]
) -> tuple[Progress, Callable[[Progress, Progress | None], None]]:
    """The progress of the last good snapshot, if there is one, and a function that saves snapshots.

    **Arguments:**

    - `progress`: the start of the run, used if there is no snapshot.
    - `arguments`: the arguments that identify the run. Raises `ValueError` if the folder belongs to
        a different run.
    """
    if checkpoints is None:
        return progress, lambda progress, before: None
    identity = {
        name: digest(part) for name, part in (arguments | checkpoints.extra_identity).items()
    }
    snapshot = checkpoints.latest(identity)

    def save(progress: Progress, before: Progress | None) -> None:
        if before is None or checkpoints.is_due(before.step, progress.step):
            checkpoints.write(snapshot_of(progress, identity))

    return progress if snapshot is None else progress_of(snapshot, progress), save


def snapshot_of(progress: Progress, identity: dict[str, str]) -> Snapshot:
    arrays = arrays_of((progress.state, progress.earlier, progress.earlier_rate), "state")
    if progress.records:
        arrays |= {_RECORDS + name: progress.recorded(name) for name in progress.records[0]}
    if progress.kept:
        arrays[_KEPT] = np.concatenate(progress.kept, axis=1)
    facts = {
        "first": progress.first,
        "seconds": time.perf_counter() - progress.started,
        "limits": progress.limits.tolist(),
        "troubles": [None if one is None else dataclasses.asdict(one) for one in progress.troubles],
        "seen": {i: dataclasses.asdict(one) for i, one in progress.not_finite.items()},
        "memo": progress.memo,
        "early_ratio": [None if np.isnan(one) else float(one) for one in progress.early_ratio],
    }
    return Snapshot(progress.step, identity, facts, arrays)


def progress_of(snapshot: Snapshot, start: Progress) -> Progress:
    """The progress in a snapshot. `start` gives the structure of the state."""
    arrays, facts = snapshot.arrays, snapshot.facts
    like: PyTree = (start.state, start.earlier, start.earlier_rate)
    state, earlier, earlier_rate = tree_like(like, "state", arrays)
    records = {
        name.removeprefix(_RECORDS): a for name, a in arrays.items() if name.startswith(_RECORDS)
    }
    early = np.array([np.nan if one is None else one for one in facts["early_ratio"]])
    return start.replace(
        first=facts["first"],
        step=snapshot.step,
        state=state,
        earlier=earlier,
        earlier_rate=earlier_rate,
        early_ratio=early,
        limits=np.array(facts["limits"]),
        troubles=tuple(None if one is None else Trouble(**one) for one in facts["troubles"]),
        not_finite={int(i): NotFinite(**one) for i, one in facts["seen"].items()},
        records=(records,) if records else (),
        kept=(arrays[_KEPT],) if _KEPT in arrays else (),
        memo=facts["memo"],
        started=time.perf_counter() - facts["seconds"],
    )
