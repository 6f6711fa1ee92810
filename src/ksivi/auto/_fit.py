"""`fit`: from a target to posterior draws, without tuning."""

import dataclasses
import math
import os
import time
from collections.abc import Sequence

import jax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

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
from ._modes import Modes
from ._recipe import Recipe
from ._refine import Refinement, refined, require_refinement
from ._runs import Ending, final_bound, new_families, train_runs
from ._start import find_start
from ._trust import Findings, examine
from ._weights import with_weighed_shares

_MAX_BOUND_GAP = 4.0
"""Runs whose bound is worse by more nats are not compared."""


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

    1. Rprop and L-BFGS search for modes, from several starts.
    2. Batch and match fits a Gaussian around each mode. If one Gaussian is not enough, their
       mixture gives rough draws.
    3. A semi-implicit family with σ(z) and an affine layer is fitted to the rough draws, and then
       trained on Jeffreys' divergence in two independent runs, until the bound has settled.
    4. Checks decide whether to trust the better run: importance weights, HMC chains that start from
       the draws, the other run, and the modes of step 1.

    **Arguments:**

    - `target`: a target with log-density values.
    - `init`: an earlier fit to start from, of this or a similar target, such as the same model with
        less data. Both runs start there, so their agreement is weaker evidence. The other checks
        are the same.
    - `refine`: adds corrected draws in `fit.refined`. `"hmc"`: the ends of HMC chains that start
        from draws of the trained sampler. `"importance"`: its draws, resampled by their importance
        weights.
    - `num_steps`: maximum number of training steps.
    - `budget_s`: approximate limit in seconds. If it ends the training, the result depends on the
        speed of the machine, and the status says so. The search, a first chunk of steps and the
        checks always run.
    - `progress`: whether to show a progress bar. Default: only if stderr is a terminal.
    - `callbacks`: each is called with a `Chunk` after every few hundred training steps. One that
        returns True ends the training, as Ctrl-C does.
    - `recipe`: the settings, if not the default ones.
    - `mesh`: several devices, as for `train`. The axis `seeds` divides the runs, and `data` the
        rows.
    - `checkpoint`, `every`: a folder for snapshots of the training, as for `train`. The same call
        again repeats the search and resumes the training. The result is the same, except that
        `budget_s` depends on the clock.

    **Returns:** a `Fit`. `fit.trusted` is True if the draws passed all checks; `fit.status` has the
    reason. Ctrl-C ends the training and returns the current draws, unchecked and not trusted.
    `fit.cost` has the total seconds, and the steps and score evaluations of the training only.

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
    checkpoints = as_checkpoints(
        checkpoint, every, recipe.max_steps, {"recipe": recipe, "budget_s": budget_s}
    )
    require_callbacks(callbacks)
    bar = ProgressBar("fit") if show_progress(progress) else None
    try:
        with handle_sigterm(checkpoint is not None), use_mesh(require_threads(as_mesh(mesh))):
            fit = _fit(
                key,
                with_sharded_rows(target),
                earlier,
                refine,
                recipe,
                budget,
                bar,
                callbacks,
                checkpoints,
            )
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
    share_key = jax.random.fold_in(examine_key, 1)
    _show_stage(bar, "fit: search")
    start, gaussians = find_start(start_key, target, recipe)
    # The checks take about as long as the search.
    deadline = began + budget - (time.perf_counter() - began)
    _show_stage(bar, "fit: training")
    if init is None:
        view, families = start.target, new_families(family_key, start, recipe)
    else:
        view, families = init.view(target), [init.family] * recipe.num_runs  # type: ignore[list-item]
    fewest = recipe.fewest_steps(is_gaussian=start.draws is None)
    watching: list[Callback] = [*callbacks] if bar is None else [*callbacks, bar]
    fits, ending = train_runs(
        train_key, view, families, recipe, fewest, deadline, watching, checkpoints
    )
    best = dataclasses.replace(fits[0], cost=_cost(fits, began))
    if best.status.kind == "interrupted":
        return _interrupted(best)
    try:
        _show_stage(bar, "fit: checks")
        runs = [_weighed(share_key, target, one, start.modes) for one in fits]
        best = dataclasses.replace(best, posterior=runs[0].posterior)
        others = _runs_to_compare(runs)
        found = gaussians, start.modes, start.early
        findings = examine(examine_key, target, best.posterior, others, *found)
    except KeyboardInterrupt:
        return _interrupted(best)
    best = dataclasses.replace(best, cost=_cost(fits, began))
    findings = dataclasses.replace(findings, diagnostics=start.noted(findings.diagnostics))
    result = _conclude(best, findings, ending, budget)
    if refine is None:
        return result
    return dataclasses.replace(result, refined=refined(refine_key, target, refine, findings))


def _cost(fits: list[Fit], began: float) -> Cost:
    """The total seconds, and the steps and score evaluations of the training."""
    evals = sum(fit.cost.score_evals for fit in fits)
    return Cost(time.perf_counter() - began, fits[0].cost.steps, evals)


def _weighed(key: PRNGKeyArray, target: Target, fit: Fit, modes: Modes | None) -> Fit:
    posterior = with_weighed_shares(key, target, fit.posterior, modes)
    return dataclasses.replace(fit, posterior=posterior)


def _runs_to_compare(fits: list[Fit]) -> list[Posterior]:
    """The other runs, except those with a much worse bound.

    The bound of a good fit to a mode with 2% of the mass is worse by at most 4 nats.
    """
    best = final_bound(fits[0])
    return [fit.posterior for fit in fits[1:] if final_bound(fit) < best + _MAX_BOUND_GAP]


def _interrupted(fit: Fit) -> Fit[FitDiagnostics]:
    reason = (
        f"stopped by the user after {fit.cost.steps:,} training steps; the draws were not checked"
    )
    diagnostics = FitDiagnostics(training=fit.diagnostics)
    return dataclasses.replace(fit, status=Status("interrupted", reason), diagnostics=diagnostics)


def _show_stage(bar: ProgressBar | None, stage: str) -> None:
    if bar is not None:
        bar.stage(stage)


def _require_density(target: Target) -> None:
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not target.has_log_density:
        raise ValueError(
            "fit needs log-density values, but this target has only a score: use ksivi.train"
        )


def _as_init(init: Fit | Posterior, target: Target) -> Posterior:
    posterior = init.posterior if isinstance(init, Fit) else init
    if not isinstance(posterior, Posterior) or not posterior.family.has_density:
        raise ValueError(
            f"init must be an earlier fit with a trained sampler, got {type(init).__name__}"
        )
    if posterior.dim != target.dim:
        raise ValueError(f"init must have the target's dim {target.dim}, got dim {posterior.dim}")
    return posterior


def _conclude(best: Fit, findings: Findings, ending: Ending, budget: float) -> Fit[FitDiagnostics]:
    """The fit with its verdict. It is trusted if there are no doubts; the status lists them."""
    doubts, steps = list(findings.doubts), f"{best.cost.steps:,} steps"
    if best.status.kind == "diverged":
        doubts.insert(0, f"training diverged: {best.status.reason}")
    ends = {
        "settled": f"the bound settled after {steps}",
        "steps": f"ran {steps}; the bound may not have settled",
        "time": f"ran {steps}, as many as {budget:g} s allow on this machine; "
        "the result differs on other machines",
    }
    passed = "; the draws passed all checks, and the checks decide" if ending == "steps" else ""
    looked = f"; {findings.diagnostics.modes}" if findings.diagnostics.num_paths else ""
    reason = ends[ending] + passed + looked
    status = Status("converged" if ending == "settled" else "step limit", reason)
    if doubts:
        status = Status(
            "not trusted", "; ".join(doubts if ending == "settled" else [*doubts, ends[ending]])
        )
    diagnostics = dataclasses.replace(findings.diagnostics, training=best.diagnostics)
    return dataclasses.replace(best, status=status, trusted=not doubts, diagnostics=diagnostics)
