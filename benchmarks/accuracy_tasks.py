"""What a process of `benchmarks.accuracy` does: makes a truth, fills a cache of programs, or measures fits."""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import ksivi

from .accuracy_report import OURS, Record
from .criterion import Criterion
from .development import Case, case, exact
from .development import names as names_of
from .rivals import RIVALS

Draws = Float[np.ndarray, "n d"]

_DRAW_SEED, _NUM_DRAWS = 10_000, 1_000
_MANY_SEED, _NUM_MANY = 20_000, 20_000
"""So many draws tell a sampler that is wrong from 1,000 draws that are unlucky, as exact ones are at times."""
_SECOND_SEED, _UPDATE_SEED = 1_000, 2_000
_ERRORS = (ValueError, RuntimeError, FloatingPointError)


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A fit and its 1,000 draws, or the error that it ended with."""

    when: str
    seconds: float
    posterior: ksivi.Posterior | None = None
    draws: Draws | None = None
    said: Record = dataclasses.field(default_factory=dict)
    error: str = ""
    fit: ksivi.Fit | None = None


def names(options: argparse.Namespace, import_s: float) -> list[str]:
    return names_of(options.set)


def truth(options: argparse.Namespace, import_s: float) -> Record:
    """Keeps draws of the truth, or says why there are none."""
    path = truth_path(options.truths, options.case)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        draws = case(options.case, options.set).truth()
    except (ValueError, RuntimeError) as error:
        return {"no_reference": str(error)}
    partial = path.with_suffix(".part.npy")
    np.save(partial, draws.astype(np.float32))
    partial.rename(path)  # a file of that name is whole
    return {}


def truth_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def fill(options: argparse.Namespace, import_s: float) -> Record:
    """A fit for the programs that it leaves in the cache: to the case, or to a Gaussian of some dimension."""
    name, dim = options.case, options.dim
    one = case(name, options.set) if dim is None else exact.correlated_gaussian(dim, 1e2)
    posterior = ksivi.fit(jax.random.key(options.seed), one.target, progress=False).posterior
    one.view(jax.random.key(_DRAW_SEED), posterior, _NUM_DRAWS)
    return {}


def measure(options: argparse.Namespace, import_s: float) -> list[Record]:
    """A record of a fit in this process, and of those that follow it here."""
    began = time.perf_counter()
    one = case(options.case, options.set)
    build_s = time.perf_counter() - began
    about = {"set": options.set, "case": one.name, "dim": one.target.dim, "method": options.method}
    about |= {"seed": options.seed, "held_out": one.held_out, "cores": _cores()}
    about |= {"import_s": round(import_s, 2), "build_s": round(build_s, 2)}
    if options.result is not None:  # for the case that the fit does not end in time
        options.result.with_name("about.json").write_text(json.dumps(about))
    attempts = _attempts(one, options)
    criterion = Criterion(np.load(truth_path(options.truths, one.name)).astype(np.float64))
    return [about | _judged(one, criterion, found, about) for found in attempts]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def _attempts(one: Case, options: argparse.Namespace) -> list[Attempt]:
    """All are timed before anything is judged, since judging compiles programs too."""
    if options.method != OURS:
        rival = RIVALS[options.method]
        return [
            _attempt(one, options.when, options.seed, lambda key: (rival(key, one.target), None))
        ]

    def fitted(**how: Any) -> Callable:
        def make(key: jax.Array) -> tuple[ksivi.Posterior, ksivi.Fit]:
            fit = ksivi.fit(key, one.target, progress=False, **how)
            return fit.posterior, fit

        return make

    first = _attempt(one, options.when, options.seed, fitted())
    found = [first]
    if "second" in options.then:
        found.append(_attempt(one, "second", _SECOND_SEED + options.seed, fitted()))
    if "update" in options.then and first.fit is not None:
        update = fitted(init=first.fit)
        found.append(_attempt(one, "update", _UPDATE_SEED + options.seed, update))
    return found


def _attempt(one: Case, when: str, seed: int, make: Callable) -> Attempt:
    """The seconds until there are 1,000 draws, compilation included."""
    began = time.perf_counter()
    try:
        posterior, fit = jax.block_until_ready(make(jax.random.key(seed)))
        made_s = time.perf_counter() - began
        draws = np.asarray(one.view(jax.random.key(_DRAW_SEED + seed), posterior, _NUM_DRAWS))
    except _ERRORS as error:
        return Attempt(when, time.perf_counter() - began, error=str(error)[:200])
    if fit is None:  # what a rival returns are draws already
        return Attempt(when, made_s, posterior, draws)
    return Attempt(when, time.perf_counter() - began, posterior, draws, _said(fit), fit=fit)


def _said(fit: ksivi.Fit) -> Record:
    """What a fit says of itself."""
    return {
        "trusted": fit.trusted,
        "status": str(fit.status),
        "answer": fit.diagnostics.answer,
        "steps": fit.cost.steps,
        "evals": fit.cost.score_evals,
        "diagnostics": dict(fit.diagnostics.rows()),
    }


def _judged(one: Case, criterion: Criterion, found: Attempt, about: Record) -> Record:
    """Seconds and accuracy. A method that fails is not accurate."""
    is_fresh = found.when not in ("second", "update")
    seconds = found.seconds + (about["import_s"] if is_fresh else 0.0)
    record = {"when": found.when, "seconds": round(seconds, 2), "fit_s": round(found.seconds, 2)}
    if found.posterior is None or found.draws is None:
        return record | {"accurate": False, "failures": [found.error]}
    if not np.isfinite(found.draws).all():
        failures = ["draws that are not finite"]
        failed = {"accurate": False, "failures": failures, "failures_of_many": failures}
        return record | failed | found.said
    key = jax.random.key(_MANY_SEED + about["seed"])
    many = np.asarray(one.view(key, found.posterior, _NUM_MANY))
    accuracy = criterion.measure(found.draws)
    return record | {
        "accurate": accuracy.accurate,
        "failures": accuracy.failures,
        "failures_of_many": criterion.measure(many[np.isfinite(many).all(axis=1)]).failures,
        "distance": round(accuracy.distance / accuracy.floor, 3),
        **found.said,
    }
