"""`fit`: from a target to posterior draws, without tuning."""

import dataclasses
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_count, as_positive, as_single_key
from ..families import SemiImplicit
from ..objectives import MaximumLikelihood
from ..posterior import Fit
from ..targets import Target
from ..training import Callback, Run
from .gaussians import batch_and_match
from .recipe import Recipe, optimizer
from .search import Found, search
from .start import Start, choose_start
from .stopping import cooling_rates, has_settled

_LOCAL_SD, _PLAIN_SDS = 0.1, (0.1, 1.0)


def fit(
    key: PRNGKeyArray,
    target: Target,
    *,
    num_steps: int | None = None,
    budget_s: float | None = None,
    progress: bool | None = None,
    recipe: Recipe | None = None,
) -> Fit:
    """Posterior draws without tuning: finds a start and coordinates, trains, stops."""
    key, recipe = as_single_key(key), recipe or Recipe()
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not target.has_log_density:
        raise ValueError("fit needs log-density values, and this target knows its score only: ksivi.train does not")
    if num_steps is not None:
        recipe = dataclasses.replace(recipe, max_steps=as_count(num_steps, "num_steps"))
    budget = float("inf") if budget_s is None else float(as_positive(budget_s, "budget_s"))
    began = time.perf_counter()
    search_key, match_key, start_key, family_key, pretrain_key, train_key = jax.random.split(key, 6)
    found = search(search_key, target, recipe.num_starts(target.dim))
    gaussians = batch_and_match(match_key, target, *_candidates(found))
    start = choose_start(start_key, target, gaussians)
    if start is None:
        raise RuntimeError("no start was found where the log density is finite")
    families = [recipe.family(one, target.dim) for one in jax.random.split(family_key, recipe.num_runs)]
    if start.draws is not None:
        families = _pretrain(pretrain_key, start, families, recipe)
    run = Run(
        jax.random.split(train_key, recipe.num_runs),
        start.target,
        families,
        recipe.objective(),
        optimizer,
        jnp.asarray(recipe.learning_rate),
        None,
        None,
    )
    _train(run, recipe, began + budget, [])
    fits = run.fits()
    return max(fits, key=lambda one: -np.mean(one.history["loss"][-500:]))


def _candidates(found: Found) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """Where Gaussians start, and how wide: ends of paths, points early on some, and the origin."""
    num, dim = found.points.shape
    ends = jnp.where(jnp.isfinite(found.log_densities)[:, None], found.points, 0)
    plain = jnp.zeros((len(_PLAIN_SDS), dim), ends.dtype)
    points = jnp.concatenate([ends, found.early[: num // 2], plain])
    return points, jnp.asarray([_LOCAL_SD] * (num + num // 2) + list(_PLAIN_SDS), ends.dtype)


def _pretrain(key: PRNGKeyArray, start: Start, families: list[SemiImplicit], recipe: Recipe) -> list[SemiImplicit]:
    """Families fitted to the rough draws, which have all the modes that were found."""
    objective = MaximumLikelihood(start.draws, 256, recipe.pretraining_mixing)
    keys = jax.random.split(key, len(families))
    run = Run(keys, start.target, families, objective, optimizer, jnp.asarray(recipe.learning_rate), None, None)
    num_chunks = recipe.num_pretraining // recipe.chunk
    for i, rate in enumerate(cooling_rates(5e-3, num_chunks)):
        run.go_on(rate)
        run.until((i + 1) * recipe.chunk, recipe.chunk, [])
    return [one.posterior.family for one in run.fits()]


def _train(run: Run, recipe: Recipe, deadline: float, callbacks: Sequence[Callback]) -> bool:
    """Chunks at the full rate until the loss has settled or time is up, then cooling; whether it settled."""
    settled, most = False, recipe.max_steps // recipe.chunk
    while not settled and run.step // recipe.chunk < most * 2 // 3 and time.perf_counter() < deadline:
        run.go_on(recipe.learning_rate)
        run.until(run.step + recipe.chunk, recipe.chunk, callbacks)
        settled = has_settled(np.concatenate(run.records["loss"], axis=1))
    for rate in cooling_rates(recipe.learning_rate, max(3, run.step // recipe.chunk // 2)):
        run.go_on(rate)
        run.until(run.step + recipe.chunk, recipe.chunk, callbacks)
    return settled
