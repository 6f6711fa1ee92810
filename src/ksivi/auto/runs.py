"""Independent runs of one recipe: fitted to rough draws, trained until the loss has settled, cooled down."""

import dataclasses
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..families import SemiImplicit
from ..objectives import AbstractObjective, MaximumLikelihood
from ..targets import Target
from ..training import Callback, Chunk, Run
from .recipe import Recipe, optimizer
from .start import Start
from .stopping import cooling_rates, has_settled


def new_families(key: PRNGKeyArray, start: Start, recipe: Recipe) -> list[SemiImplicit]:
    """One for each run, fitted to the rough draws where there are some."""
    family_key, fit_key = jax.random.split(key)
    families = [recipe.family(one, start.target.dim) for one in jax.random.split(family_key, recipe.num_runs)]
    return families if start.draws is None else _fit_to_draws(fit_key, start.target, start.draws, families, recipe)


def train_runs(
    key: PRNGKeyArray,
    target: Target,
    families: list[SemiImplicit],
    recipe: Recipe,
    deadline: float,
    show: Callback | None = None,
) -> tuple[Run, bool]:
    """Chunks at the full rate until the loss has settled or time is up, then cooling; and whether it settled.

    **Arguments:**

    - `deadline`: by `time.perf_counter`, for the end of the cooling.
    - `show`: is called after every chunk.
    """
    run = _new_run(key, target, families, recipe.objective(), recipe.learning_rate)
    chunk = min(recipe.chunk, -(-recipe.max_steps // 3))
    settled, most, slowest = False, recipe.max_steps * 2 // 3, 0.0
    while not settled and _can_go_on(run) and run.step + chunk <= most:
        left = deadline - time.perf_counter()
        if run.step > 0 and left < slowest * (1 + _num_cooling(run.step + chunk, chunk)):
            break
        began, compiled = time.perf_counter(), run.step > 0
        _advance(run, chunk, recipe.learning_rate, _expecting(show, recipe.max_steps))
        slowest = max(slowest, time.perf_counter() - began) if compiled else slowest
        settled = has_settled(np.concatenate(run.records["loss"], axis=1))
    num_cooling = _num_cooling(run.step, chunk)
    show_rest = _expecting(show, run.step + num_cooling * chunk)
    for rate in cooling_rates(recipe.learning_rate, num_cooling):
        _advance(run, chunk, rate, show_rest)
    return run, settled


def _num_cooling(step: int, chunk: int) -> int:
    """Chunks of cooling after so many steps: half as many again."""
    return max(1, step // chunk // 2)


def _fit_to_draws(
    key: PRNGKeyArray, target: Target, draws: Float[Array, "n d"], families: list[SemiImplicit], recipe: Recipe
) -> list[SemiImplicit]:
    """Families fitted to rough draws, which have all the modes that were found."""
    objective = MaximumLikelihood(draws, recipe.pretraining_samples, recipe.pretraining_mixing)
    run = _new_run(key, target, families, objective, recipe.learning_rate)
    for rate in cooling_rates(recipe.learning_rate, recipe.num_pretraining // recipe.chunk):
        _advance(run, recipe.chunk, rate)
    fits = run.fits()
    if fits[0].status.kind == "interrupted":
        raise KeyboardInterrupt
    return [one.posterior.family for one in fits]  # type: ignore[misc]


def _new_run(
    key: PRNGKeyArray, target: Target, families: list[SemiImplicit], objective: AbstractObjective, rate: float
) -> Run:
    keys = jax.random.split(key, len(families))
    return Run(keys, target, families, objective, optimizer, jnp.asarray(rate), None, None, briefly=True)


def _advance(run: Run, num_steps: int, rate: float, show: Callback | None = None) -> None:
    """More steps at this rate, unless the user or trouble has ended the run."""
    if _can_go_on(run):
        run.go_on(rate)
        run.until(run.step + num_steps, num_steps, [] if show is None else [show])


def _can_go_on(run: Run) -> bool:
    return None in run.troubles and (run.ending is None or run.ending.kind == "step limit")


def _expecting(show: Callback | None, num_steps: int) -> Callback | None:
    """Shows chunks as parts of so many steps."""
    return None if show is None else functools.partial(_show_chunk, show, num_steps)


def _show_chunk(show: Callable[[Chunk], object], num_steps: int, chunk: Chunk) -> None:
    show(dataclasses.replace(chunk, num_steps=num_steps))
