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

from .._compile import one_shot
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..posterior import Fit
from ..targets import Target
from ..training import Callback, Chunk, Run
from .recipe import Recipe, optimizer
from .start import Start
from .stopping import cooling_rates, has_settled

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
) -> tuple[list[Fit], Ending]:
    """Chunks at the full rate until the bound has settled or time is up, then cooling; the better fits come first.

    **Arguments:**

    - `fewest_steps`: before the bound may count as settled.
    - `deadline`: by `time.perf_counter`, for the end of the cooling.
    - `callbacks`: are called after every chunk.
    """
    run = _new_run(key, target, families, recipe.objective(target.dim), recipe.learning_rate)
    chunk = min(recipe.chunk, -(-recipe.max_steps // 3))
    ending, most, slowest = "steps", recipe.max_steps * 2 // 3, 0.0
    while ending == "steps" and _can_go_on(run) and run.step + chunk <= most:
        began, is_compiled = time.perf_counter(), run.step > 0
        if is_compiled and deadline - began < slowest * (1 + _num_cooling(run.step + chunk, chunk)):
            ending = "time"
            break
        _advance(run, chunk, recipe.learning_rate, _expecting(callbacks, recipe.max_steps))
        slowest = max(slowest, time.perf_counter() - began) if is_compiled else 0.0
        ending = "settled" if _has_settled(run, fewest_steps) else "steps"
    num_cooling = _num_cooling(run.step, chunk)
    callbacks = _expecting(callbacks, run.step + num_cooling * chunk)
    for rate in cooling_rates(recipe.learning_rate, num_cooling):
        _advance(run, chunk, rate, callbacks)
    return sorted(run.fits(), key=final_bound), ending  # type: ignore[return-value]


def final_bound(fit: Fit) -> float:
    """SIVI's bound over the last steps; a run that diverged, or has none, comes last."""
    losses = fit.history.get("bound", np.zeros(0))[-500:]
    return float("inf") if fit.status.kind == "diverged" or not len(losses) else float(np.nanmean(losses))


def _has_settled(run: Run, fewest_steps: int) -> bool:
    healthy = [i for i, trouble in enumerate(run.troubles) if trouble is None]
    if not healthy or not _can_go_on(run):
        return False
    return has_settled(np.concatenate(run.records["bound"], axis=1)[healthy], fewest_steps)


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
    for one in cooling_rates(rate, -(-num_steps // chunk)):
        _advance(run, chunk, one)
    fits = run.fits()
    if any(fit.status.kind == "interrupted" for fit in fits):
        raise KeyboardInterrupt
    return fits


def _new_run(
    key: PRNGKeyArray, target: Target, families: list[SemiImplicit], objective: AbstractObjective, rate: float
) -> Run:
    keys = jax.random.split(key, len(families))
    return Run(
        keys, target, families, objective, optimizer, jnp.asarray(rate), None, None, briefly=True, forgiving=True
    )


def _advance(run: Run, num_steps: int, rate: float, callbacks: Sequence[Callback] = ()) -> None:
    """More steps at this rate, unless the user or trouble has ended the run."""
    if _can_go_on(run):
        run.go_on(rate)
        run.until(run.step + num_steps, num_steps, callbacks)


def _can_go_on(run: Run) -> bool:
    return None in run.troubles and (run.ending is None or run.ending.kind == "step limit")


def _expecting(callbacks: Sequence[Callback], num_steps: int) -> list[Callback]:
    """The callbacks, shown every chunk as a part of so many steps."""
    return [functools.partial(_show, one, num_steps) for one in callbacks]


def _show(callback: Callback, num_steps: int, chunk: Chunk) -> Any:
    return callback(dataclasses.replace(chunk, num_steps=num_steps))
