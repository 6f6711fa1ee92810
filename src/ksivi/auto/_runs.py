"""Independent runs of one recipe: fitted to rough draws, trained until the bound has settled, cooled down."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .._core.compile import one_shot
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..results import Fit
from ..targets import Target
from ..training import Callback, Checkpoints, Chunk, Run
from ._recipe import Recipe, optimizer
from ._start import Start
from ._stopping import cooling_rates, has_settled

Ending = Literal["settled", "steps", "time"]
"""What ended the training at the full rate."""


def new_families(key: PRNGKeyArray, start: Start, recipe: Recipe) -> list[SemiImplicit]:
    """One for each run, fitted to the rough draws where there are some."""
    family_key, fit_key = jax.random.split(key)
    is_gaussian, keys = start.draws is None, jax.random.split(family_key, recipe.num_runs)
    families = [_new_family(recipe, one, start.target.dim, is_gaussian) for one in keys]
    if start.draws is None or recipe.num_pretraining == 0:
        return families
    objective = recipe.first_objective(start.draws)
    fits = _cooled(fit_key, start.target, families, objective, recipe.learning_rate, recipe.num_pretraining)
    return [one.posterior.family for one in fits]  # type: ignore[misc]


@one_shot
def _new_family(recipe: Recipe, key: PRNGKeyArray, dim: int, is_gaussian: bool) -> SemiImplicit:
    return recipe.family(key, dim, is_gaussian)


def train_runs(
    key: PRNGKeyArray,
    target: Target,
    families: list[SemiImplicit],
    recipe: Recipe,
    fewest_steps: int,
    deadline: float,
    callbacks: Sequence[Callback] = (),
    checkpoints: Checkpoints | None = None,
) -> tuple[list[Fit], Ending]:
    """Chunks at the full rate until the bound has settled or time is up, then cooling; the better fits come first.

    **Arguments:**

    - `fewest_steps`: before the bound may count as settled.
    - `deadline`: by `time.perf_counter`, for the end of the cooling.
    - `callbacks`: are called after every chunk.
    - `checkpoints`: where the training goes on from, and leaves snapshots.
    """
    objective, rate = recipe.objective(target.dim), recipe.learning_rate
    run = _new_run(key, target, families, objective, rate, checkpoints)
    chunk = min(recipe.chunk, -(-recipe.max_steps // 3))
    # A run from a checkpoint is ahead of `step`: it is led through what it has done by what it recorded then.
    step, ending, most, slowest = 0, "steps", recipe.max_steps * 2 // 3, 0.0
    most = run.memo.get("cooling_from", most)
    while ending == "steps" and _can_go_on(run, step) and step + chunk <= most:
        began, is_compiled = time.perf_counter(), step > 0
        if is_compiled and deadline - began < slowest * (1 + _num_cooling(step + chunk, chunk)):
            ending = "time"
            break
        step += chunk
        _advance(run, step, chunk, rate, _expecting(callbacks, recipe.max_steps))
        slowest = max(slowest, time.perf_counter() - began) if is_compiled else 0.0
        ending = "settled" if _has_settled(run, step, fewest_steps) else "steps"
    ending = run.memo.get("ending", ending)
    if _can_go_on(run, step):  # whom the user has ended goes on at the full rate when it is resumed
        run.memo |= {"ending": ending, "cooling_from": step}
    num_cooling = _num_cooling(step, chunk)
    callbacks = _expecting(callbacks, step + num_cooling * chunk)
    for rate in cooling_rates(recipe.learning_rate, num_cooling):
        step += chunk
        _advance(run, step, chunk, rate, callbacks)
    run.save()
    return sorted(run.fits(), key=final_bound), ending


def final_bound(fit: Fit) -> float:
    """SIVI's bound over the last steps; a run that diverged, or has none, comes last."""
    losses = fit.history.get("bound", np.zeros(0))[-500:]
    return float("inf") if fit.status.kind == "diverged" or not len(losses) else float(np.nanmean(losses))


def _has_settled(run: Run, step: int, fewest_steps: int) -> bool:
    healthy = [i for i, trouble in enumerate(run.troubles) if trouble is None or trouble.step >= step]
    if not healthy or not _can_go_on(run, step):
        return False
    return has_settled(np.concatenate(run.records["bound"], axis=1)[healthy, :step], fewest_steps)


def _num_cooling(step: int, chunk: int) -> int:
    """Chunks of cooling after so many steps: half as many again."""
    return max(1, step // chunk // 2)


def _cooled(
    key: PRNGKeyArray,
    target: Target,
    families: list[SemiImplicit],
    objective: AbstractObjective,
    rate: float,
    num_steps: int,
) -> list[Fit]:
    """Runs of so many steps, with a rate that falls to 0 in ten stages. Ctrl-C goes through."""
    run = _new_run(key, target, families, objective, rate)
    chunk = -(-num_steps // 10)
    for i, one in enumerate(cooling_rates(rate, -(-num_steps // chunk))):
        _advance(run, (i + 1) * chunk, chunk, one)
    fits = run.fits()
    if any(fit.status.kind == "interrupted" for fit in fits):
        raise KeyboardInterrupt
    return fits


def _new_run(
    key: PRNGKeyArray,
    target: Target,
    families: list[SemiImplicit],
    objective: AbstractObjective,
    rate: float,
    checkpoints: Checkpoints | None = None,
) -> Run:
    keys, options = jax.random.split(key, len(families)), {"briefly": True, "forgiving": True}
    rates = (jnp.asarray(rate), None, None)
    return Run(keys, target, families, objective, optimizer, *rates, **options, checkpoints=checkpoints)


def _advance(run: Run, until: int, chunk: int, rate: float, callbacks: Sequence[Callback] = ()) -> None:
    """Up to this step at this rate, unless the run is past it, or the user or trouble has ended it."""
    if run.step <= until and _can_go_on(run, run.step):
        run.go_on(rate)
        run.until(until, chunk, callbacks)


def _can_go_on(run: Run, step: int) -> bool:
    """Whether any run was well at this step, and nobody has ended them."""
    well = any(trouble is None or trouble.step >= step for trouble in run.troubles)
    return well and (run.ending is None or run.ending.kind == "step limit")


def _expecting(callbacks: Sequence[Callback], num_steps: int) -> list[Callback]:
    """The callbacks, shown every chunk as a part of so many steps."""
    return [functools.partial(_show, one, num_steps) for one in callbacks]


def _show(callback: Callback, num_steps: int, chunk: Chunk) -> Any:
    return callback(dataclasses.replace(chunk, num_steps=num_steps))
