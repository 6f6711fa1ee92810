"""What a process of `benchmarks.big` does. Each task leaves files of JSON, and of draws, in a folder."""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

import ksivi

from .accuracy_report import Record
from .accuracy_tasks import _ERRORS, _said, truth_path
from .big_names import parse
from .big_problems import Problem, all_rows, problem
from .big_rivals import NUM_DRAWS, RIVALS, Slices
from .big_run import read
from .criterion import Criterion
from .memory import MemoryPeak

Draws = Float[np.ndarray, "n d"]

_DRAW_SEED = 10_000
_SPACING = 1.5
"""Draws of a method in slices are kept whenever its time has grown by this factor, and at its end."""


def truth(options: argparse.Namespace, import_s: float) -> None:
    """Keeps draws of the truth, or says why there are none."""
    began, said = time.perf_counter(), {}
    try:
        kept_truth(options.problem, options.truths, options.disk)
    except (*_ERRORS, OSError) as error:
        said = {"no_truth": str(error)}
    _write(options.place / "truth.json", said | {"truth_s": round(time.perf_counter() - began, 1)})


def kept_truth(name: str, folder: Path, disk: Path | None = None) -> Draws:
    """Draws of the truth: from the folder, from an easier form of the problem, or made now."""
    path = truth_path(folder, name)
    if not path.exists():
        one = problem(name, disk)
        if one.scores is not None:
            return np.empty((0, one.target.dim))
        draws = one.truth() if one.back is None else one.back(_easy(one, folder, disk))
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part.npy")
        np.save(partial, draws.astype(np.float32))
        partial.rename(path)  # a file of that name is whole
    return np.load(path).astype(np.float64)


def _easy(one: Problem, folder: Path, disk: Path | None) -> Draws:
    return kept_truth(one.easy, folder, disk)


def fit(options: argparse.Namespace, import_s: float) -> None:
    """Fits, and writes draws, their times, and what the fit says of itself."""
    began = time.perf_counter()
    one = problem(options.problem, options.disk)
    target = all_rows(one.target) if options.method == "ksivi.fit, all rows" else one.target
    about = {"dim": target.dim, "device": jax.devices()[0].device_kind, "cores": _cores()}
    about |= {"import_s": round(import_s, 2), "build_s": round(time.perf_counter() - began, 2)}
    _write(options.place / "about.json", about)
    with Watched(options.problem) as memory:
        said = _slices_or_error(options, target, Journal(options.place, import_s))
    _write(options.place / "said.json", said | memory.figures)


def _slices_or_error(
    options: argparse.Namespace, target: ksivi.Target, journal: "Journal"
) -> Record:
    key = jax.random.key(options.seed)
    try:
        if options.method in RIVALS:
            return _in_slices(RIVALS[options.method](key, target), journal, options.limit_s)
        return _fitted(key, target, journal)
    except ValueError as error:  # a bad argument: the method does not take such a target
        return {"error": f"refused: {error}"[:300]}
    except _ERRORS as error:
        return {"error": str(error)[:300]}


def _fitted(key: jax.Array, target: ksivi.Target, journal: "Journal") -> Record:
    found = ksivi.fit(key, target, progress=False)
    draw_key = jax.random.fold_in(key, _DRAW_SEED)
    draws = np.asarray(found.posterior.sample(draw_key, NUM_DRAWS))
    journal.keep(lambda: draws)
    return _said(found)


def _in_slices(slices: Slices, journal: "Journal", limit_s: float) -> Record:
    """Goes on until the method is done or the time is over. Making draws is not counted."""
    last, is_over = None, False
    for last in _timed(slices, journal):
        is_over = journal.seconds > limit_s
        if is_over:
            break
        if last is not None and journal.is_due:
            journal.keep(last)
            last = None
    if last is not None:
        journal.keep(last)
    return {"status": "time limit" if is_over else "done"}


def _timed(slices: Slices, journal: "Journal") -> Iterator[Callable | None]:
    for one in slices:
        journal.stop()
        yield one
        journal.go_on()


class Journal:
    """A clock that stands still while draws are made and written, and the draws with their times.

    **Arguments:**

    - `place`: the folder for the draws.
    - `import_s`: the seconds that are already spent.
    """

    def __init__(self, place: Path, import_s: float):
        self.place, self.spent = place, import_s
        self.began: float | None = time.perf_counter()
        self.times: list[float] = []

    @property
    def seconds(self) -> float:
        return self.spent + (0 if self.began is None else time.perf_counter() - self.began)

    @property
    def is_due(self) -> bool:
        return not self.times or self.seconds > _SPACING * self.times[-1]

    def stop(self) -> None:
        self.spent, self.began = self.seconds, None

    def go_on(self) -> None:
        self.began = time.perf_counter()

    def keep(self, make: Callable[[], Draws]) -> None:
        """Writes the draws of this moment. The times are written last: those that are named there are whole."""
        self.stop()
        path = self.place / f"draws-{len(self.times)}.npy"
        np.save(path, np.asarray(make(), np.float32))
        self.times.append(round(self.seconds, 2))
        _write(self.place / "times.json", {"seconds": self.times})


class Watched:
    """Looks at the memory that the process itself holds, where rows are on disk.

    Pages of a mapped file count as resident too, though the system drops them as it needs.
    """

    def __init__(self, name: str):
        self.memory = MemoryPeak("RssAnon") if parse(name).kind == "disk" else None

    def __enter__(self) -> "Watched":
        if self.memory is not None:
            self.memory.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.memory is not None:
            self.memory.__exit__(*exception)

    @property
    def figures(self) -> Record:
        return {} if self.memory is None else {"anonymous_gib": round(self.memory.peak / 2**30, 3)}


def judge(options: argparse.Namespace, import_s: float) -> None:
    """The accuracy of all draws that a fit left, by the criterion, or their scores where there is no truth."""
    times = read(options.place / "times.json").get("seconds", [])
    draws = [np.load(options.place / f"draws-{i}.npy") for i in range(len(times))]
    if not draws:
        found: Record = {"accurate": False, "failures": ["no draws"]}
    elif parse(options.problem).kind == "network":
        found = _scored(problem(options.problem), draws[-1])
    else:
        found = _compared(kept_truth(options.problem, options.truths, options.disk), draws, times)
    _write(options.place / "judged.json", found)


def _scored(one: Problem, draws: Draws) -> Record:
    assert one.scores is not None
    return {"accurate": None, "failures": []} | one.scores(draws)


def _compared(truth: Draws, draws: list[Draws], times: list[float]) -> Record:
    """The last draws, and by time whether they were accurate: `accurate_s` is the first time that they were."""
    criterion = Criterion(truth)
    found = [_measured(criterion, one) for one in draws]
    first = next((t for t, one in zip(times, found, strict=True) if one["accurate"]), None)
    path = [[t, one.get("distance")] for t, one in zip(times, found, strict=True)]
    return found[-1] | {"accurate_s": first, "path": path}


def _measured(criterion: Criterion, draws: Draws) -> Record:
    if not np.isfinite(draws).all():
        return {"accurate": False, "failures": ["draws that are not finite"]}
    accuracy = criterion.measure(draws)
    figures = dataclasses.asdict(accuracy)
    rounded = {name: np.round(value, 4).tolist() for name, value in figures.items()}
    rounded |= {"distance": round(accuracy.distance / accuracy.floor, 3)}
    return {"accurate": bool(accuracy.accurate), "failures": accuracy.failures} | rounded


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def _write(path: Path, found: Record) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(found))
    partial.rename(path)
