"""`fit`: from a target to posterior draws, without tuning."""

import dataclasses
import math
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_count, as_positive, as_single_key
from ..families import SemiImplicit
from ..objectives import AbstractObjective, MaximumLikelihood
from ..posterior import Fit, Status
from ..targets import Target
from ..training import Callback, ProgressBar, Run, wanted
from .gaussians import Gaussians, batch_and_match
from .recipe import Recipe, optimizer
from .search import Found, search
from .start import Start, choose_start
from .stopping import cooling_rates, has_settled
from .trust import Findings, examine

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
    r"""Posterior draws without tuning, and a verdict on them.

    Paths of L-BFGS find where the mass may be; Gaussians by batch and match find its scale, and their mixture rough
    draws where one Gaussian is not enough; a semi-implicit family with σ(z) and an affine layer is fitted to those and
    then trained on SIVI's bound, in two independent runs, until the loss has settled. Importance weights, chains of
    HMC that start from the draws, the other run and the modes found at the start then say whether to trust it.

    **Arguments:**

    - `target`: its log density must be known.
    - `num_steps`: at most so many steps of training.
    - `budget_s`: seconds after which training cools down and ends. Where it bites, the result depends on the speed of
        the machine, and the status says so.
    - `progress`: whether to draw a progress bar; when unset, if stderr is a terminal.
    - `recipe`: other settings than the default ones.

    **Returns:** a `Fit`. `fit.trusted` is True when nothing speaks against the draws; the status has the reason.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    fit = ksivi.fit(jax.random.key(0), target, num_steps=1_000)
    print(fit)
    ```
    """
    key, recipe = as_single_key(key), recipe or Recipe()
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not target.has_log_density:
        raise ValueError("fit needs log-density values, and this target knows its score only: use ksivi.train")
    if num_steps is not None:
        recipe = dataclasses.replace(recipe, max_steps=as_count(num_steps, "num_steps"))
    budget = math.inf if budget_s is None else float(as_positive(budget_s, "budget_s"))
    began = time.perf_counter()
    start_key, train_key, examine_key = jax.random.split(key, 3)
    start, gaussians = _find_start(start_key, target, recipe)
    bars = [ProgressBar("fit")] if wanted(progress) else []
    try:
        run, settled = _train(train_key, start, recipe, began + budget, bars)
    finally:
        for bar in bars:
            bar.close()
    fits = sorted(run.fits(), key=_final_loss)
    if fits[0].status.kind == "interrupted":
        return fits[0]
    findings = examine(examine_key, target, [one.posterior for one in fits], gaussians)
    return _conclude(fits[0], findings, settled, time.perf_counter() - began, budget)


def _find_start(key: PRNGKeyArray, target: Target, recipe: Recipe) -> tuple[Start, Gaussians]:
    search_key, match_key, choose_key = jax.random.split(key, 3)
    found = search(search_key, target, recipe.num_starts(target.dim))
    gaussians = batch_and_match(match_key, target, *_candidates(found))
    start = choose_start(choose_key, target, gaussians)
    if start is None:
        raise RuntimeError("fit found no place where the log density is finite, from any of its starts near the origin")
    return start, gaussians


def _final_loss(fit: Fit) -> float:
    """Of the last steps; a run that diverged comes last."""
    return math.inf if fit.status.kind == "diverged" else float(np.mean(fit.history["loss"][-500:]))


def _conclude(best: Fit, findings: Findings, settled: bool, seconds: float, budget: float) -> Fit:
    """The fit with its verdict: trusted where there is no doubt, else not trusted, with all doubts for a reason."""
    doubts = list(findings.doubts)
    if best.status.kind == "diverged":
        doubts.insert(0, f"training diverged: {best.status.reason}")
    ending = f"the loss settled after {best.cost.steps:,} steps"
    if not settled:
        ending = f"ran {best.cost.steps:,} steps, and the loss still fell"
        ending += f", as far as {budget:g} s went on this machine" if seconds > budget else ""
    status = Status("converged" if settled else "step limit", ending)
    if doubts:
        status = Status("not trusted", "; ".join(doubts))
    cost = dataclasses.replace(best.cost, seconds=seconds)
    return dataclasses.replace(best, status=status, trusted=not doubts, diagnostics=findings.diagnostics, cost=cost)


def _candidates(found: Found) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """Where Gaussians start, and how wide: ends of paths, points early on some, and the origin."""
    num, dim = found.points.shape
    ends = jnp.where(jnp.isfinite(found.log_densities)[:, None], found.points, 0)
    plain = jnp.zeros((len(_PLAIN_SDS), dim), ends.dtype)
    points = jnp.concatenate([ends, found.early[: num // 2], plain])
    return points, jnp.asarray([_LOCAL_SD] * (num + num // 2) + list(_PLAIN_SDS), ends.dtype)


def _train(
    key: PRNGKeyArray, start: Start, recipe: Recipe, deadline: float, callbacks: Sequence[Callback]
) -> tuple[Run, bool]:
    """Chunks at the full rate until the loss has settled or time is up, then cooling; and whether it settled."""
    family_key, pretrain_key, run_key = jax.random.split(key, 3)
    families = [recipe.family(one, start.target.dim) for one in jax.random.split(family_key, recipe.num_runs)]
    if start.draws is not None:
        families = _pretrain(pretrain_key, start.target, start.draws, families, recipe)
    run = _new_run(run_key, start.target, families, recipe.objective(), recipe.learning_rate)
    chunk = min(recipe.chunk, -(-recipe.max_steps // 3))
    settled, most = False, recipe.max_steps * 2 // 3
    while not settled and _can_go_on(run) and run.step + chunk <= most and time.perf_counter() < deadline:
        _advance(run, chunk, recipe.learning_rate, callbacks)
        settled = has_settled(np.concatenate(run.records["loss"], axis=1))
    for rate in cooling_rates(recipe.learning_rate, max(1, run.step // chunk // 2)):
        _advance(run, chunk, rate, callbacks)
    return run, settled


def _pretrain(
    key: PRNGKeyArray, target: Target, draws: Float[Array, "n d"], families: list[SemiImplicit], recipe: Recipe
) -> list[SemiImplicit]:
    """Families fitted to rough draws, which have all the modes that were found."""
    objective = MaximumLikelihood(draws, recipe.pretraining_samples, recipe.pretraining_mixing)
    run = _new_run(key, target, families, objective, recipe.learning_rate)
    for rate in cooling_rates(recipe.learning_rate, recipe.num_pretraining // recipe.chunk):
        _advance(run, recipe.chunk, rate, [])
    return [one.posterior.family for one in run.fits()]  # type: ignore[misc]


def _new_run(
    key: PRNGKeyArray, target: Target, families: list[SemiImplicit], objective: AbstractObjective, rate: float
) -> Run:
    keys = jax.random.split(key, len(families))
    return Run(keys, target, families, objective, optimizer, jnp.asarray(rate), None, None, briefly=True)


def _advance(run: Run, num_steps: int, rate: float, callbacks: Sequence[Callback]) -> None:
    """More steps at this rate, unless the user or trouble has ended the run."""
    if _can_go_on(run):
        run.go_on(rate)
        run.until(run.step + num_steps, num_steps, callbacks)


def _can_go_on(run: Run) -> bool:
    return None in run.troubles and (run.ending is None or run.ending.kind == "step limit")
