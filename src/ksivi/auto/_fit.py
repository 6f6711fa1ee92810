"""`fit`: from a target to posterior draws, without tuning."""

import dataclasses
import math
import os
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_positive, as_single_key, describe, require_callbacks
from .._core.sharding import as_mesh, require_threads, use_mesh
from ..results import Cost, Fit, FitDiagnostics, Posterior, Status, gathered
from ..targets import Target, require_all_rows
from ..training import (
    Callback,
    Checkpoints,
    ProgressBar,
    as_checkpoints,
    handle_sigterm,
    show_progress,
    with_sharded_rows,
)
from ._gaussians import LOCAL_SD, Gaussians, batch_and_match
from ._recipe import Recipe
from ._refine import Refinement, refined, require_refinement
from ._runs import Ending, final_bound, new_families, train_runs
from ._scan import with_far_modes
from ._search import Found, first_starts, search
from ._start import Start, choose_start
from ._trust import Findings, examine

_PLAIN_SDS = (0.1, 1.0)
_ASTRAY = 4.0


def fit(
    key: PRNGKeyArray,
    target: Target,
    *,
    init: Fit | Posterior | None = None,
    refine: Refinement | None = None,
    num_steps: int | None = None,
    budget_s: float | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    recipe: Recipe | None = None,
    mesh: Mesh | None = None,
    checkpoint: str | os.PathLike | None = None,
    every: int | None = None,
) -> Fit[FitDiagnostics]:
    r"""Posterior draws without tuning, and a verdict on them.

    Paths of Rprop and L-BFGS find where the mass may be; Gaussians by batch and match find its scale, and their
    mixture rough draws where one Gaussian is not enough; a semi-implicit family with σ(z) and an affine layer is fitted
    to those and then trained on Jeffreys' divergence, in two independent runs, until the bound has settled. Importance
    weights, chains of HMC that start from the draws, the other run and the modes found at the start then say whether
    to trust the better one.

    **Arguments:**

    - `target`: its log density must be known.
    - `init`: an earlier fit to start from, of this target or one like it, such as the model with less data. Both runs
        start there, so that their agreement says less; the other checks are made as ever.
    - `refine`: `"hmc"` or `"importance"`, to have corrected draws in `fit.refined` besides those of the trained
        sampler: the ends of chains that began at its draws, or its draws resampled by their importance weights.
    - `num_steps`: at most so many steps of training.
    - `budget_s`: about how many seconds all of it may take. Where it bites, the result depends on the speed of the
        machine, and the status says so. The search, a first chunk of steps and the checks are never left out.
    - `progress`: whether to draw a progress bar; when unset, if stderr is a terminal.
    - `callbacks`: called with a `Chunk` after every few hundred steps of training; one that returns True ends it, as
        Ctrl-C does.
    - `recipe`: other settings than the default ones.
    - `mesh`: several devices, as for `train`: its axis `seeds` divides the runs, and `data` the rows.
    - `checkpoint`, `every`: a folder for snapshots of the training, as for `train`. The search is made again when the
        same call resumes, and comes to the same end; with `budget_s` that is as far as clocks allow.

    **Returns:** a `Fit`. `fit.trusted` is True when nothing speaks against the draws; the status has the reason. Ctrl-C
    ends the training and returns what there is, unexamined and not trusted. `cost` has all the seconds, and the steps
    and score evaluations of the training alone.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    fit = ksivi.fit(jax.random.key(0), target, num_steps=1_000)
    print(fit)
    ```
    """
    key, recipe = as_single_key(key), Recipe() if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe must be a ksivi.Recipe, got {describe(recipe)}")
    _require_density(target)
    require_all_rows(target, "fit")
    earlier = None if init is None else _as_init(init, target)
    if refine is not None:
        require_refinement(refine)
    if num_steps is not None:
        recipe = dataclasses.replace(recipe, max_steps=as_count(num_steps, "num_steps"))
    budget = math.inf if budget_s is None else float(as_positive(budget_s, "budget_s"))
    checkpoints = as_checkpoints(checkpoint, every, recipe.max_steps, {"recipe": recipe, "budget_s": budget_s})
    require_callbacks(callbacks)
    bar = ProgressBar("fit") if show_progress(progress) else None
    try:
        with handle_sigterm(checkpoint is not None), use_mesh(require_threads(as_mesh(mesh))):
            fit = _fit(key, with_sharded_rows(target), earlier, refine, recipe, budget, bar, callbacks, checkpoints)
        return gathered(fit)
    finally:
        if bar is not None:
            bar.close()


def _fit(
    key: PRNGKeyArray,
    target: Target,
    init: Posterior | None,
    refine: Refinement | None,
    recipe: Recipe,
    budget: float,
    bar: ProgressBar | None,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints | None,
) -> Fit[FitDiagnostics]:
    began, target = time.perf_counter(), target.unwhitened()
    start_key, family_key, train_key, examine_key, refine_key = jax.random.split(key, 5)
    _say(bar, "fit: search")
    start, gaussians = _find_start(start_key, target, recipe)
    # The checks take about as long as the search did.
    deadline = began + budget - (time.perf_counter() - began)
    _say(bar, "fit: training")
    if init is None:
        view, families = start.target, new_families(family_key, start, recipe)
    else:
        view, families = init.view(target), [init.family] * recipe.num_runs  # type: ignore[list-item]
    fewest = recipe.fewest_steps(is_gaussian=start.draws is None)
    watching: list[Callback] = [*callbacks] if bar is None else [*callbacks, bar]
    fits, ending = train_runs(train_key, view, families, recipe, fewest, deadline, watching, checkpoints)
    best = dataclasses.replace(fits[0], cost=_cost(fits, began))
    if best.status.kind == "interrupted":
        return _interrupted(best)
    try:
        _say(bar, "fit: checks")
        findings = examine(examine_key, target, best.posterior, _rivals(fits), gaussians)
    except KeyboardInterrupt:
        return _interrupted(best)
    best = dataclasses.replace(best, cost=_cost(fits, began))
    result = _conclude(best, findings, ending, budget)
    if refine is None:
        return result
    return dataclasses.replace(result, refined=refined(refine_key, target, refine, findings))


def _cost(fits: list[Fit], began: float) -> Cost:
    """All seconds, and what the training of all runs took."""
    evals = sum(fit.cost.score_evals for fit in fits)
    return Cost(time.perf_counter() - began, fits[0].cost.steps, evals)


def _rivals(fits: list[Fit]) -> list[Posterior]:
    """The other runs, but for those astray: a good fit to a mode with 2% of the mass is at most 4 nats below."""
    best = final_bound(fits[0])
    return [fit.posterior for fit in fits[1:] if final_bound(fit) < best + _ASTRAY]


def _interrupted(fit: Fit) -> Fit[FitDiagnostics]:
    reason = f"stopped by the user after {fit.cost.steps:,} steps of training; the draws are not examined"
    diagnostics = FitDiagnostics(training=fit.diagnostics)
    return dataclasses.replace(fit, status=Status("interrupted", reason), diagnostics=diagnostics)


def _say(bar: ProgressBar | None, stage: str) -> None:
    if bar is not None:
        bar.stage(stage)


def _require_density(target: Target) -> None:
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not target.has_log_density:
        raise ValueError("fit needs log-density values, but this target has only a score: use ksivi.train")


def _as_init(init: Fit | Posterior, target: Target) -> Posterior:
    posterior = init.posterior if isinstance(init, Fit) else init
    if not isinstance(posterior, Posterior) or not posterior.family.has_density:
        raise ValueError(f"init must be an earlier fit with a trained sampler, got {type(init).__name__}")
    if posterior.dim != target.dim:
        raise ValueError(f"init must have the target's dim {target.dim}, got dim {posterior.dim}")
    return posterior


def _find_start(key: PRNGKeyArray, target: Target, recipe: Recipe) -> tuple[Start, Gaussians]:
    search_key, match_key, choose_key = jax.random.split(key, 3)
    found = search(target, first_starts(search_key, recipe.num_starts(target.dim), target.dim))
    gaussians = batch_and_match(match_key, target, *_candidates(found))
    if recipe.scans(target.dim):
        gaussians = with_far_modes(jax.random.fold_in(key, 3), target, found, gaussians)
    start = choose_start(choose_key, target, gaussians)
    if start is None:
        raise RuntimeError(
            "fit found no Gaussian whose draws all have a finite log density: it is not finite near the origin, or is "
            "0 or NaN beside its mass; write the model on an unconstrained scale"
        )
    return start, gaussians


def _conclude(best: Fit, findings: Findings, ending: Ending, budget: float) -> Fit[FitDiagnostics]:
    """The fit with its verdict: trusted where there is no doubt, else not trusted, with all doubts for a reason."""
    doubts, steps = list(findings.doubts), f"{best.cost.steps:,} steps"
    if best.status.kind == "diverged":
        doubts.insert(0, f"training diverged: {best.status.reason}")
    ends = {
        "settled": f"the bound settled after {steps}",
        "steps": f"ran {steps}, after which the bound may still fall",
        "time": f"ran {steps}, as many as {budget:g} s allow on this machine; on another one the result differs",
    }
    status = Status("converged" if ending == "settled" else "step limit", ends[ending])
    if doubts:
        status = Status("not trusted", "; ".join(doubts if ending == "settled" else [*doubts, ends[ending]]))
    diagnostics = dataclasses.replace(findings.diagnostics, training=best.diagnostics)
    return dataclasses.replace(best, status=status, trusted=not doubts, diagnostics=diagnostics)


def _candidates(found: Found) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """Where Gaussians start, and how wide: ends of paths, points early on some, and the origin."""
    num, dim = found.points.shape
    ends = jnp.where(jnp.isfinite(found.log_densities)[:, None], found.points, 0)
    plain = jnp.zeros((len(_PLAIN_SDS), dim), ends.dtype)
    points = jnp.concatenate([ends, found.early[: num // 2], plain])
    return points, jnp.asarray([LOCAL_SD] * (num + num // 2) + list(_PLAIN_SDS), ends.dtype)
