"""`fit`: from a target to posterior draws, without tuning."""

import dataclasses
import functools
import math
import os
import time
from collections.abc import Sequence
from typing import get_args

from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from .._core.checks import (
    as_choice,
    as_count,
    as_positive,
    as_single_key,
    describe,
    require_callbacks,
)
from .._core.numerics import generator
from .._core.sharding import as_mesh, require_threads, use_mesh
from ..families import SemiImplicit
from ..results import Cost, Fit, FitDiagnostics, Posterior, gathered
from ..targets import Evaluator, Target, require_all_rows
from ..training import (
    Callback,
    Checkpoints,
    ProgressBar,
    as_checkpoints,
    handle_sigterm,
    show_progress,
    with_sharded_rows,
)
from ._answers import Kind, mixture_answer, trained_answer
from ._recipe import Recipe
from ._refine import Refinement, refined, require_refinement
from ._start import find_start, start_from
from ._trust import explained
from ._verdict import Answer, conclude


def fit(
    key: PRNGKeyArray,
    target: Target,
    *,
    init: Fit | Posterior | None = None,
    at_least: Kind | None = None,
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
    2. Batch and match fits a Gaussian around each mode.
    3. Checks decide whether to trust the best Gaussian: importance weights, HMC chains that start
       from its draws, and the modes of step 1.
    4. If they raise a doubt, particles are annealed from the Gaussians to the target, and a mixture
       of Gaussians is fitted to them and checked.
    5. If that is doubted too, a semi-implicit family with σ(z) and an affine layer is fitted to the
       best draws so far, trained on Jeffreys' divergence in two independent runs until the bound
       has settled, and checked.

    The first answer that nothing speaks against is returned.

    **Arguments:**

    - `target`: a target with log-density values.
    - `init`: an earlier fit to start from, of this or a similar target, such as the same model with
        less data. It takes the place of the search, so modes that it does not have are not found.
        The checks are the same.
    - `at_least`: the first answer to try: `"gaussian"`, `"mixture"` or `"sampler"`. Default:
        `"gaussian"`, or `"sampler"` if one of `recipe`, `num_steps`, `callbacks` and `checkpoint`,
        which are about training, is given.
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
    `fit.cost` has the total seconds, the steps of the training, and all score evaluations.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    fit = ksivi.fit(jax.random.key(0), target, num_steps=1_000)
    print(fit)
    ```
    """
    key = as_single_key(key)
    if not isinstance(recipe, Recipe | None):
        raise ValueError(f"recipe must be a ksivi.Recipe, got {describe(recipe)}")
    _require_density(target)
    require_all_rows(target, "fit")
    earlier = None if init is None else _as_init(init, target)
    if refine is not None:
        require_refinement(refine)
    require_callbacks(callbacks)
    about_training = (recipe, num_steps, checkpoint, *callbacks)
    kind = _as_kind(at_least, is_sampler=any(one is not None for one in about_training))
    recipe = Recipe() if recipe is None else recipe
    if num_steps is not None:
        recipe = dataclasses.replace(recipe, max_steps=as_count(num_steps, "num_steps"))
    budget = math.inf if budget_s is None else float(as_positive(budget_s, "budget_s"))
    checkpoints = as_checkpoints(
        checkpoint, every, recipe.max_steps, {"recipe": recipe, "budget_s": budget_s}
    )
    bar = ProgressBar("fit") if show_progress(progress) else None
    try:
        with handle_sigterm(checkpoint is not None), use_mesh(require_threads(as_mesh(mesh))):
            fit = _fit(
                key,
                with_sharded_rows(target),
                earlier,
                refine,
                recipe,
                kind,
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
    kind: Kind,
    budget: float,
    bar: ProgressBar | None,
    callbacks: Sequence[Callback],
    checkpoints: Checkpoints | None,
) -> Fit[FitDiagnostics]:
    began, rng = time.perf_counter(), generator(key)
    evaluate = Evaluator(target)
    show = functools.partial(_show_stage, bar)
    show("search")
    if init is None:
        dim = evaluate.dim
        start = find_start(rng, evaluate, recipe.num_starts(dim), recipe.scans(dim))
    else:
        start = start_from(rng, evaluate, init)
    answer, draws = None, start.draws
    if kind != "sampler":
        show("checks")
        answer, draws = mixture_answer(rng, evaluate, start, kind)
    if answer is None or not answer.is_final:
        deadline = began + budget
        watching: list[Callback] = [*callbacks] if bar is None else [*callbacks, bar]
        first = init if init is not None and isinstance(init.family, SemiImplicit) else None
        answer = trained_answer(
            rng, evaluate, start, draws, first, recipe, deadline, watching, checkpoints, show
        )
    if answer.findings is not None:
        findings = explained(evaluate, answer.findings, start.early)
        answer = dataclasses.replace(answer, findings=findings)
    cost = _cost(answer, evaluate, began)
    fit = conclude(answer, start, cost, budget)
    if refine is None:
        return fit
    return dataclasses.replace(fit, refined=refined(rng, target, refine, answer.findings))


def _cost(answer: Answer, evaluate: Evaluator, began: float) -> Cost:
    steps, evals = (0, 0) if answer.trained is None else _trained_cost(answer.trained)
    return Cost(time.perf_counter() - began, steps, evaluate.count + evals)


def _trained_cost(fit: Fit) -> tuple[int, int]:
    return fit.cost.steps, fit.cost.score_evals


def _show_stage(bar: ProgressBar | None, stage: str) -> None:
    if bar is not None:
        bar.stage(f"fit: {stage}")


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


def _as_kind(at_least: Kind | None, is_sampler: bool) -> Kind:
    if at_least is None:
        return "sampler" if is_sampler else "gaussian"
    return as_choice(at_least, "at_least", get_args(Kind))
