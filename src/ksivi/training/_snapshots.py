"""Converts progress to and from snapshots on disk."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
from jaxtyping import PyTree

from .._core.schema import conform
from ..results import NotFinite
from ._checkpoints import Checkpoints, Snapshot, arrays_of, tree_like
from ._identity import digest
from ._task import Progress
from ._trouble import Trouble

_RECORDS, _KEPT = "records.", "kept"


class _Facts(TypedDict):
    """What a snapshot holds of a `Progress`, besides arrays."""

    first: int
    seconds: float
    limits: list[int]
    troubles: list[Trouble | None]
    seen: dict[str, NotFinite]
    memo: dict[str, Any]
    early_ratio: list[float | None]


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
    """The progress in a snapshot. `start` gives the structure of the state.

    Raises `ValueError` if the snapshot is not what `snapshot_of` makes.
    """
    arrays, facts = snapshot.arrays, conform(snapshot.facts, _Facts, "the checkpoint")
    like: PyTree = (start.state, start.earlier, start.earlier_rate)
    state, earlier, earlier_rate = tree_like(like, "state", arrays)
    records = {
        name.removeprefix(_RECORDS): a for name, a in arrays.items() if name.startswith(_RECORDS)
    }
    kept = (arrays[_KEPT],) if _KEPT in arrays else ()
    _require_consistent(snapshot.step, facts, records, kept, len(start.troubles))
    early = np.array([np.nan if one is None else one for one in facts["early_ratio"]])
    return start.replace(
        first=facts["first"],
        step=snapshot.step,
        state=state,
        earlier=earlier,
        earlier_rate=earlier_rate,
        early_ratio=early,
        limits=np.array(facts["limits"]),
        troubles=tuple(facts["troubles"]),
        not_finite={int(i): one for i, one in facts["seen"].items()},
        records=(records,) if records else (),
        kept=kept,
        memo=facts["memo"],
        started=time.perf_counter() - facts["seconds"],
    )


def _require_consistent(step: int, facts: _Facts, records: dict, kept: tuple, runs: int) -> None:
    """Raises `ValueError` unless there is everything for each run and each step."""
    taken, per_run = (
        step - facts["first"],
        (facts["limits"], facts["troubles"], facts["early_ratio"]),
    )
    fits = {
        "first": 0 <= facts["first"] <= step,
        "limits": all(len(one) == runs for one in per_run),
        "seen": all(i.isdecimal() and int(i) < runs for i in facts["seen"]),
        "records": all(a.shape == (runs, taken) for a in records.values())
        and (taken == 0 or {"loss", "stein_ratio"} <= set(records)),
        "kept": all(a.ndim == 4 and len(a) == runs for a in kept),
    }
    if wrong := [name for name, is_right in fits.items() if not is_right]:
        raise ValueError(
            f"checkpoint folder has a damaged snapshot: its {wrong[0]} do not fit the run; "
            "use an empty folder"
        )
