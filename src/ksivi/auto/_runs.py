"""Independent runs: fitted to rough draws, trained until the bound has settled, then cooled."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.compile import one_shot
from .._core.numerics import new_key
from .._core.schema import conform
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..results import Fit
from ..targets import Evaluator, Target
from ..training import (
    Callback,
    Checkpoints,
    Chunk,
    Host,
    Progress,
    Training,
    fits_of,
    new_training,
    restored,
)
from ._measured import with_weighed_shares
from ._modes import Blobs, Modes
from ._recipe import Recipe, optimizer
from ._stopping import Ending, cooling_rates, has_settled


class _Memo(TypedDict, total=False):
    """The decisions that a checkpoint keeps."""

    ending: Ending
    cooling_from: int


class View(NamedTuple):
    """The target in whitened coordinates, rough draws there, and the separate modes of the draws."""

    target: Target
    draws: Float[Array, "n d"] | None
    modes: Modes | None


def new_families(
    rng: np.random.Generator, evaluate: Evaluator, view: View, recipe: Recipe
) -> list[SemiImplicit]:
    """One family per run, fitted to the rough draws if there are any."""
    is_gaussian, dim = view.draws is None, view.target.dim
    blobs = None if view.draws is None or view.modes is None else view.modes.blobs(view.draws)
    families = [
        _new_family(recipe, new_key(rng), dim, is_gaussian, blobs) for _ in range(recipe.num_runs)
    ]
    if view.draws is None or recipe.num_pretraining == 0:
        return families
    objective = recipe.first_objective(view.draws)
    fits = _train_cooling(
        new_key(rng), view.target, families, objective, recipe.learning_rate, recipe.num_pretraining
    )
    best = min(fits, key=final_bound).posterior
    weighed = with_weighed_shares(rng, evaluate, best, view.modes)
    mixing = weighed.family.mixing  # type: ignore[union-attr]  # one for all runs: not trained
    return [eqx.tree_at(lambda f: f.mixing, fit.posterior.family, mixing) for fit in fits]


@one_shot
def _new_family(
    recipe: Recipe, key: PRNGKeyArray, dim: int, is_gaussian: bool, blobs: Blobs | None
) -> SemiImplicit:
    return recipe.family(key, dim, is_gaussian, blobs)


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
    """Trains the runs and returns their fits, best first.

    The learning rate is constant until the bound has settled or the time is over, and then
    decreases.

    **Arguments:**

    - `fewest_steps`: minimum number of steps before the bound can count as settled.
    - `deadline`: latest end of the cooling, as `time.perf_counter`.
    - `callbacks`: called after every chunk.
    - `checkpoints`: the snapshots to resume from, and to write.
    """
    training, progress = _new_training(
        key, target, families, recipe.objective(target.dim), recipe.learning_rate
    )
    arguments = training.arguments(
        _keys(key, families), target, training.setup.objective, progress.rate, None
    )
    progress, save = restored(checkpoints, progress, arguments)
    conform(progress.memo, _Memo, "the decisions in the checkpoint")
    schedule = Schedule(recipe, fewest_steps, deadline)
    progress, ending = schedule.train(Host(training, save), progress, callbacks)
    save(progress, None)
    return sorted(fits_of(training, progress), key=final_bound), ending


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Chunks at the full learning rate until the bound has settled, then cooling.

    If the bound does not settle, they take `max_steps` steps together, and the cooling at least a
    third of them. A run that resumes from a checkpoint repeats its earlier decisions, from its
    records.
    """

    recipe: Recipe
    fewest_steps: int
    deadline: float

    @property
    def chunk(self) -> int:
        """Steps in a chunk: at least three equal chunks, of which only the last may be shorter."""
        most = self.recipe.max_steps
        return -(-most // max(3, -(-most // self.recipe.chunk)))

    @property
    def most_at_full_rate(self) -> int:
        """The maximum number of steps at the full rate: two thirds of the chunks."""
        num_chunks = -(-self.recipe.max_steps // self.chunk)
        return num_chunks * 2 // 3 * self.chunk

    def end_of_cooling(self, step: int) -> int:
        """The last step, if cooling begins at `step`: half as many chunks, or all that are left."""
        if step + self.chunk > self.most_at_full_rate:
            return self.recipe.max_steps
        return step + max(1, step // self.chunk // 2) * self.chunk

    def train(
        self, host: Host, progress: Progress, callbacks: Sequence[Callback]
    ) -> tuple[Progress, Ending]:
        progress, step, ending = self._at_full_rate(
            host, progress, _with_total_steps(callbacks, self.recipe.max_steps)
        )
        ending = progress.memo.get("ending", ending)
        if _can_continue(progress, step):  # a run that the user stopped resumes at the full rate
            progress = progress.replace(
                memo=progress.memo | {"ending": ending, "cooling_from": step}
            )
        return self._cool(host, progress, step, callbacks), ending

    def _at_full_rate(
        self, host: Host, progress: Progress, callbacks: Sequence[Callback]
    ) -> tuple[Progress, int, Ending]:
        chunk, rate, slowest = self.chunk, self.recipe.learning_rate, 0.0
        step, ending = 0, "steps"
        most = progress.memo.get("cooling_from", self.most_at_full_rate)
        while ending == "steps" and _can_continue(progress, step) and step + chunk <= most:
            began, is_compiled = time.perf_counter(), step > 0
            num_left = (self.end_of_cooling(step + chunk) - step) / chunk
            if is_compiled and self.deadline - began < slowest * num_left:
                return progress, step, "time"
            step += chunk
            progress = _advance(host, progress, step, chunk, rate, callbacks)
            slowest = max(slowest, time.perf_counter() - began) if is_compiled else 0.0
            ending = "settled" if _has_settled(progress, step, self.fewest_steps) else "steps"
        return progress, step, ending  # type: ignore[return-value]

    def _cool(
        self, host: Host, progress: Progress, step: int, callbacks: Sequence[Callback]
    ) -> Progress:
        chunk, end = self.chunk, self.end_of_cooling(step)
        callbacks = _with_total_steps(callbacks, end)
        for rate in cooling_rates(self.recipe.learning_rate, -(-(end - step) // chunk)):
            step = min(step + chunk, end)
            progress = _advance(host, progress, step, chunk, rate, callbacks)
        return progress


def final_bound(fit: Fit) -> float:
    """The mean of SIVI's bound over the last steps; infinite for a run that diverged."""
    losses = fit.history.get("bound", np.zeros(0))[-500:]
    return (
        float("inf")
        if fit.status.kind == "diverged" or not len(losses)
        else float(np.nanmean(losses))
    )


def _has_settled(progress: Progress, step: int, fewest_steps: int) -> bool:
    healthy = [
        i for i, trouble in enumerate(progress.troubles) if trouble is None or trouble.step >= step
    ]
    if not healthy or not _can_continue(progress, step):
        return False
    return has_settled(progress.recorded("bound")[healthy, :step], fewest_steps)


def _train_cooling(
    key: PRNGKeyArray,
    target: Target,
    families: list[SemiImplicit],
    objective: AbstractObjective,
    rate: float,
    num_steps: int,
) -> list[Fit]:
    """Trains for `num_steps`, with a learning rate that decreases to 0 in ten stages.

    Raises `KeyboardInterrupt` if the user stops it.
    """
    training, progress = _new_training(key, target, families, objective, rate)
    host, chunk = Host(training), -(-num_steps // 10)
    for i, one in enumerate(cooling_rates(rate, -(-num_steps // chunk))):
        progress = _advance(host, progress, min((i + 1) * chunk, num_steps), chunk, one)
    if progress.ending is not None:
        raise KeyboardInterrupt
    return fits_of(training, progress)


def _new_training(
    key: PRNGKeyArray,
    target: Target,
    families: list[SemiImplicit],
    objective: AbstractObjective,
    rate: float,
) -> tuple[Training, Progress]:
    options = {"fast_compile": True, "skip_nonfinite": True}
    return new_training(
        _keys(key, families), target, families, objective, optimizer, jnp.asarray(rate), **options
    )


def _keys(key: PRNGKeyArray, families: list[SemiImplicit]) -> PRNGKeyArray:
    return jax.random.split(key, len(families))


def _advance(
    host: Host,
    progress: Progress,
    until: int,
    chunk: int,
    rate: float,
    callbacks: Sequence[Callback] = (),
) -> Progress:
    """Advances the runs up to a step at a learning rate, if they are not past it and not ended."""
    if progress.step > until or not _can_continue(progress, progress.step):
        return progress
    at_rate = progress.at_rate(jnp.asarray(rate, jnp.result_type(float)))
    return host.until(at_rate, until, chunk, callbacks)


def _can_continue(progress: Progress, step: int) -> bool:
    """Whether any run had no trouble up to this step, and the runs were not stopped."""
    is_healthy = any(trouble is None or trouble.step >= step for trouble in progress.troubles)
    return is_healthy and progress.ending is None


def _with_total_steps(callbacks: Sequence[Callback], num_steps: int) -> list[Callback]:
    """The callbacks, with `num_steps` as the total number of steps."""
    return [functools.partial(_show, one, num_steps) for one in callbacks]


def _show(callback: Callback, num_steps: int, chunk: Chunk) -> Any:
    return callback(dataclasses.replace(chunk, num_steps=num_steps))
