"""`fit`: from a target to posterior draws, without tuning."""

import contextlib
import dataclasses
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from .._core.checks import (
    as_count,
    as_flag,
    as_positive,
    as_single_key,
    describe,
    require_callbacks,
)
from .._core.numerics import generator
from .._core.programs import program_cache
from .._core.sharding import as_mesh, require_threads, use_mesh
from .._core.threads import few_threads
from ..families import SemiImplicit
from ..results import Fit, FitDiagnostics, Posterior, gathered
from ..targets import Evaluator, OutOfTime, Target
from ..training import (
    Callback,
    Checkpoints,
    Stages,
    as_checkpoints,
    handle_sigterm,
    on_devices,
    stages,
)
from ._amended import of_target, with_doubts_of
from ._answers import Draws, mixture_answer, sampler_again, trained_answer
from ._arguments import Kind, as_batch, as_init, as_kind, as_target, is_batch, is_of, names_given
from ._large import find_large, large_answer
from ._many_rows import Plan as RowsPlan
from ._many_rows import could_use_some_rows, fit_to_rows, uses_some_rows
from ._measured import LARGE_DIM
from ._price import Price, ended_in_search
from ._recipe import Recipe
from ._refine import (
    Refinement,
    checked_before,
    refined,
    refined_again,
    refined_or_why,
    require_refinement,
    with_refined,
)
from ._scores import fit_to_score
from ._start import Start, find_start, start_from
from ._verdict import Answer, conclude, cost_of, ended_by_budget


def fit(
    key: PRNGKeyArray,
    target: Target | Sequence[Target],
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
    cache: bool = True,
) -> Fit[FitDiagnostics]:
    r"""Posterior draws without tuning, and a verdict on them.

    1. Rprop and L-BFGS search for modes, from several starts.
    2. Batch and match fits a Gaussian around each mode.
    3. If the best Gaussian is nearly enough, it is checked: by importance weights, by HMC chains
       that start from its draws, and by the modes of step 1.
    4. Otherwise particles are annealed from all Gaussians to the target, and a mixture of Gaussians
       is fitted to them and checked. If the checks correct the draws by more than noise, a mixture
       is fitted to the corrected draws, at most three times.
    5. If that is not enough, a semi-implicit family with σ(z) and an affine layer is fitted to the
       best draws so far, trained on Jeffreys' divergence in two independent runs until the bound
       has settled, and checked.

    The first answer without a doubt is returned. Above 150 dimensions, chains of HMC
    start from a Gaussian of low rank, and a warped Gaussian is fitted to where they settle.

    A target with minibatches and many rows is replaced by some of its rows, with a correction that
    gives them the gradient and the Hessian of all rows at the mode. A pass over all rows measures
    the error that is left, and the status has it. A target with a score alone gets log densities by
    integrals of the score along lines; the error of these is measured too.

    **Arguments:**

    - `key`, `target`: a key and a target. A batch of keys, or a list of targets with one key for
        each, gives a list of fits, which ends at Ctrl-C. Targets of one model with data of the same
        shapes compile nothing again.
    - `init`: an earlier fit to start from, of this or a similar target, such as the same model with
        less data. It takes the place of the search, so modes that it does not have are not found.
        The checks are the same. Doubts that only a search can remove stay.
    - `at_least`: the first answer to try: `"gaussian"`, `"mixture"` or `"sampler"`. Default:
        `"gaussian"`, or `"sampler"` if one of `recipe`, `num_steps`, `callbacks` and `checkpoint`,
        which are about training, is given.
    - `refine`: adds corrected draws in `fit.refined`. `"hmc"`: states of HMC chains that start
        from draws of the answer. `"importance"`: its draws, resampled by their importance weights.
        `fit.refined.trusted` is about them. A checked fit to this target as `init` is not fitted
        again, but for the exceptions in the guide to `fit`.
    - `num_steps`: maximum number of training steps.
    - `budget_s`: approximate limit in seconds, for all but `refine`. If it ends a stage, the result
        depends on the speed of the machine, and the status says what was left out. If it ends the
        search, there is nothing to return, and `RuntimeError` is raised.
    - `progress`: whether to show what is going on, on stderr: a bar if it is a terminal, else a
        line per stage. Default: yes.
    - `callbacks`: each is called with a `Chunk` after every few hundred training steps. One that
        returns True ends the training, as Ctrl-C does.
    - `recipe`: the settings, if not the default ones.
    - `mesh`: several devices, as for `train`. The axis `seeds` divides the runs, `data` the rows,
        those of `ksivi.Rows` too, and `samples` the points of an evaluation.
    - `checkpoint`, `every`: a folder for snapshots of the training, as for `train`. The same call
        again repeats the search and resumes the training. The result is the same, except that
        `budget_s` depends on the clock. Not for a target with a score alone.
    - `cache`: whether compiled programs are kept on disk for the next process, and loaded from
        there. It changes no result.

    **Returns:** a `Fit`, or a list of them. `fit.trusted` is True if the draws passed all checks;
    `fit.status` has the reason. Ctrl-C ends the training and returns the current draws, unchecked and not trusted.
    `fit.cost` has the total seconds, the steps of the training, and all score evaluations.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    fit = ksivi.fit(jax.random.key(0), target, num_steps=1_000)
    print(fit)
    ```
    """
    if isinstance(target, list | tuple) or is_batch(key):
        # All arguments, by name. Callers with one target, nearly all, need no cast of the result.
        return _fit_many(key, target, locals())  # type: ignore[return-value]
    key = as_single_key(key)
    if not isinstance(recipe, Recipe | None):
        raise ValueError(f"recipe must be a ksivi.Recipe, got {describe(recipe)}")
    single = as_target(target)
    earlier = None if init is None else as_init(init, single)
    if refine is not None:
        require_refinement(refine)
    require_callbacks(callbacks)
    about_training = (recipe, num_steps, checkpoint, *callbacks)
    kind = as_kind(at_least, is_sampler=any(one is not None for one in about_training))
    recipe = Recipe() if recipe is None else recipe
    if num_steps is not None:
        recipe = dataclasses.replace(recipe, max_steps=as_count(num_steps, "num_steps"))
    budget = math.inf if budget_s is None else float(as_positive(budget_s, "budget_s"))
    checkpoints = as_checkpoints(
        checkpoint, every, recipe.max_steps, {"recipe": recipe, "budget_s": budget_s}
    )
    bar = stages(progress)
    watching = [*callbacks, *([] if bar is None else [bar])]
    again = init if isinstance(init, Fit) and is_of(init, single) else None
    given = names_given(init=init, again=again, num_steps=num_steps, refine=refine)
    plan = _Plan(earlier, refine, recipe, kind, budget, watching, checkpoints, bar, given)
    if refine is not None and at_least is None and kind != "sampler":
        plan = dataclasses.replace(plan, checked=checked_before(init, single))
    try:
        with (
            program_cache(as_flag(cache, "cache")),
            handle_sigterm(checkpoint is not None),
            use_mesh(require_threads(as_mesh(mesh))),
            few_threads(single.dim if kind == "sampler" else 1),  # others have thin matrices
        ):
            found = of_target(_fit(key, on_devices(single), plan), single.unwhitened())
            return gathered(found if again is None else with_doubts_of(found, again))
    finally:
        if bar is not None:
            bar.close()


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The checked arguments of a fit."""

    init: Posterior | None
    refine: Refinement | None
    recipe: Recipe
    kind: Kind
    budget: float
    callbacks: list[Callback]
    checkpoints: Checkpoints | None
    bar: Stages | None
    given: tuple[str, ...] = ()
    checked: Fit[FitDiagnostics] | None = None  # a fit to this target, which is only refined
    is_advised: bool = True

    def show(self, stage: str) -> None:
        if self.bar is not None:
            self.bar.stage(f"fit: {stage}")


def _fit(key: PRNGKeyArray, target: Target, plan: _Plan) -> Fit[FitDiagnostics]:
    rng, began, numbers = generator(key), time.perf_counter(), itertools.count(1)

    def fit_to(other: Target, init: Posterior | None) -> Fit[FitDiagnostics]:
        known = plan.checkpoints and plan.checkpoints.part(next(numbers))
        part = dataclasses.replace(plan, init=init, is_advised=False, checkpoints=known)
        return _fit_as_it_is(rng, other, part, began)

    if plan.checked is not None and plan.refine is not None:
        plan.show("refinement")
        return refined_again(rng, Evaluator(target), plan.refine, plan.checked, began)
    if not target.has_log_density:
        if plan.checkpoints is not None:  # there can be several trainings
            raise ValueError("checkpoint must be None for a target that has only a score")
        return fit_to_score(rng, target, plan.init, fit_to, plan.show)
    if not uses_some_rows(target):
        return _fit_as_it_is(rng, target, plan, began)
    about = plan.init, plan.recipe.num_starts(target.dim), fit_to, plan.show, began, plan.budget
    return fit_to_rows(rng, target, RowsPlan(*about))


def _fit_as_it_is(
    rng: np.random.Generator, target: Target, plan: _Plan, began: float
) -> Fit[FitDiagnostics]:
    """A fit to a target with the rows that it has."""
    evaluate = Evaluator(target)
    evaluate.deadline = began + plan.budget
    if plan.bar is not None:
        evaluate.watch = Price(plan.bar, evaluate, plan.is_advised and could_use_some_rows(target))
    is_large = evaluate.dim > LARGE_DIM and plan.kind != "sampler"
    start, answer = (_large if is_large else _small)(rng, evaluate, plan, began)
    corrected = None
    if evaluate.is_over:
        answer = ended_by_budget(answer, plan.budget, is_large)
    if plan.refine is not None:
        corrected = refined_or_why(refined, rng, evaluate, plan.refine, answer, start.modes)
    cost = cost_of(answer, evaluate, began)
    fit = conclude(answer, start, cost, plan.budget, plan.given)
    return fit if corrected is None else with_refined(fit, corrected)


def _small(
    rng: np.random.Generator, evaluate: Evaluator, plan: _Plan, began: float
) -> tuple[Start, Answer]:
    """A Gaussian, a mixture or a trained sampler."""
    with _searching(evaluate, plan):
        start = _start(rng, evaluate, plan)
    answer, draws = None, start.draws
    if plan.kind != "sampler":
        plan.show("Gaussians and their checks")
        answer, draws = mixture_answer(rng, evaluate, start, plan.kind)
    if answer is None or not (answer.is_final or evaluate.is_over):
        try:
            answer = _trained(rng, evaluate, start, draws, plan, began)
        except KeyboardInterrupt:  # before the training has a result of its own
            if answer is None:
                raise
            answer = dataclasses.replace(answer, findings=None)
    return start, answer


def _large(
    rng: np.random.Generator, evaluate: Evaluator, plan: _Plan, began: float
) -> tuple[Start, Answer]:
    """A Gaussian or a warped Gaussian: in many dimensions nothing is trained."""
    with _searching(evaluate, plan):
        found = find_large(rng, evaluate, plan.init)
    plan.show("a Gaussian and its chains")
    return found.start, large_answer(rng, evaluate, found)


@contextlib.contextmanager
def _searching(evaluate: Evaluator, plan: _Plan) -> Iterator[None]:
    """The search must end within the budget: without it there is nothing to return."""
    plan.show("search")
    try:
        yield
    except OutOfTime:
        is_advised = plan.is_advised and could_use_some_rows(evaluate.target)
        raise ended_in_search(plan.budget, evaluate, is_advised) from None


def _start(rng: np.random.Generator, evaluate: Evaluator, plan: _Plan) -> Start:
    if plan.init is not None:
        return start_from(rng, evaluate, plan.init)
    dim = evaluate.dim
    return find_start(rng, evaluate, plan.recipe.num_starts(dim), plan.recipe.scans(dim))


def _trained(
    rng: np.random.Generator,
    evaluate: Evaluator,
    start: Start,
    draws: Draws | None,
    plan: _Plan,
    began: float,
) -> Answer:
    init = plan.init if plan.init and isinstance(plan.init.family, SemiImplicit) else None
    near = init if start.known and plan.kind != "sampler" else None
    answer = None if near is None else sampler_again(rng, evaluate, near, start)
    watched = plan.callbacks, plan.checkpoints, plan.show, began
    return answer or trained_answer(rng, evaluate, start, draws, init, plan.recipe, *watched)


def _fit_many(
    key: PRNGKeyArray, target: Target | Sequence[Target], options: dict[str, Any]
) -> list[Fit[FitDiagnostics]]:
    """One fit per key. All targets may differ, or be the same."""
    keys, targets = as_batch(key, target, options["checkpoint"])
    rest = {name: value for name, value in options.items() if name not in ("key", "target")}
    fits: list[Fit[FitDiagnostics]] = []
    for one, of in zip(keys, targets, strict=True):
        fits.append(fit(one, of, **rest))
        if fits[-1].status.kind == "interrupted":
            break
    return fits
