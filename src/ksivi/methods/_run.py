"""`run`: runs a particle method or Markov chains."""

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .._core.checks import as_count, as_flag, as_keys, require_callbacks
from .._core.numerics import split_key
from .._core.programs import program_cache
from ..results import Fit, raise_if_diverged
from ..targets import Target, require_all_rows
from ..training import (
    Callback,
    Host,
    ProgressBar,
    as_checkpoints,
    handle_sigterm,
    restored,
    show_progress,
)
from ._method import AbstractMethod
from ._sampling import RunState, Sampling, start_of


@program_cache()
def run(
    key: PRNGKeyArray,
    target: Target,
    method: AbstractMethod,
    *,
    chunk_size: int = 100,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    resume: RunState | Sequence[RunState] | None = None,
    throw: bool = False,
    checkpoint: str | os.PathLike | None = None,
    every: int | None = None,
) -> Fit | list[Fit]:
    """Runs a particle method or Markov chains.

    **Arguments:**

    - `key`: one key, or a batch of keys for that many independent runs.
    - `target`: the density to sample from. Only `SGLD` and `SVGD` use minibatches; the other
        methods use all rows.
    - `method`: `SVGD`, `KSDD`, `MIED`, `SGLD`, `MALA` or `NUTS`.
    - `chunk_size`: approximate number of steps between two looks at the run. Results do not depend
        on it.
    - `callbacks`: each is called with a `Chunk` after every chunk. One that returns True ends the
        run.
    - `progress`: whether to show a progress bar. Default: only if stderr is a terminal.
    - `resume`: the `state` of an earlier `Fit` of the same method on the same target, with fewer
        steps or draws; one state per key for a batch of keys.
    - `throw`: raise `RuntimeError` if the run diverges, instead of reporting it in the status.
    - `checkpoint`: a folder for snapshots of the run. The same call again resumes from the last
        good one and gives the same result as an uninterrupted run. Ctrl-C and SIGTERM save a
        snapshot; SIGTERM then ends the process with exit code 143. The folder of a different run
        raises `ValueError`.
    - `every`: number of steps between snapshots. Default: a hundredth of the method's steps.

    **Returns:** a `Fit`, or a list of them for a batch of keys. Its posterior is the set of draws.
    The history at a step describes the state before the step.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    fit = ksivi.run(jax.random.key(0), target, ksivi.SVGD(num_particles=50, num_steps=200))
    ```
    """
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not isinstance(method, AbstractMethod):
        raise ValueError(
            f"method must be one of ksivi's methods, such as ksivi.NUTS(), got {method!r}"
        )
    require_callbacks(callbacks)
    key, chunk_size, throw = (
        as_keys(key),
        as_count(chunk_size, "chunk_size"),
        as_flag(throw, "throw"),
    )
    require_all_rows(target, "run")
    checkpoints = as_checkpoints(checkpoint, every, method.num_steps)
    bar = [ProgressBar(type(method).__name__)] if show_progress(progress) else []
    try:
        with handle_sigterm(checkpoint is not None):
            sampling = _new_sampling(key, target, method, resume)
            done, save = restored(checkpoints, sampling.progress(), sampling.arguments(key, resume))
            if done.step >= method.num_steps and done.step == done.first:
                raise ValueError(
                    f"resume must come from a run of fewer than {method.num_steps} steps, "
                    f"got one of {done.step}"
                )
            chunk_size = chunk_size if checkpoints is None else min(chunk_size, checkpoints.every)
            done = Host(sampling, save).until(
                done, method.num_steps, chunk_size, [*callbacks, *bar]
            )
            save(done, None)
            fits = sampling.fits(done)
    finally:
        for drawn in bar:
            drawn.close()
    raise_if_diverged(fits, throw)
    return fits if sampling.batched else fits[0]


def _new_sampling(
    key: PRNGKeyArray, target: Target, method: AbstractMethod, resume: Any
) -> Sampling:
    batched, (init_key, step_key) = key.ndim == 1, split_key(key, 2)
    keys = list(init_key) if batched else [init_key]
    starts = [_new_start(one, target, method) for one in keys]
    if resume is not None:
        starts = _as_starts(resume, starts, target, batched)
    keeps_positions = bool(method.keeps(np.arange(method.num_steps)).any())
    return Sampling(step_key, target, method, tuple(starts), batched, keeps_positions)


def _new_start(key: PRNGKeyArray, target: Target, method: AbstractMethod) -> RunState:
    dim = target.dim
    if method.start is not None and method.start.shape[1] != dim:
        raise ValueError(
            f"start must have the target's {dim} coordinates, got {method.start.shape[1]}"
        )
    x = jax.random.normal(key, (method.num_points, dim)) if method.start is None else method.start
    if method.start is not None and target.coordinates is not None:
        x = jax.vmap(target.coordinates.inverse)(x)
    inner, value, finite = start_of(x, target, method)
    bad = int(jnp.sum(~finite))
    if bad:
        raise ValueError(
            "target must be finite where the points start: its log density or score is NaN or "
            f"infinite at {bad} of {len(x)} points; pass start= or check the log density"
        )
    return RunState(0, inner, (), (), float("nan"), method, float(value[0]))


def _as_starts(resume: Any, fresh: list[RunState], target: Target, batched: bool) -> list[RunState]:
    """The states to resume from. They must match the method and the target."""
    states = resume if batched else [resume]
    if batched and (
        isinstance(resume, RunState)
        or not isinstance(resume, Sequence)
        or len(resume) != len(fresh)
    ):
        raise ValueError(
            f"resume must be a list with one state per key, {len(fresh)} of them, got {resume!r}"
        )
    for state in states:
        _require_same_run(state, fresh[0], target)
    steps = {state.step for state in states}
    if len(steps) > 1:
        raise ValueError(f"resume must have states of the same step, got steps {sorted(steps)}")
    return list(states)


def _require_same_run(resume: Any, fresh: RunState, target: Target) -> None:
    if not isinstance(resume, RunState):
        raise ValueError(
            f"resume must be the state of a Fit made by ksivi.run, got {type(resume).__name__}"
        )
    if not fresh.method.same_but_longer(resume.method):
        name = type(fresh.method).__name__
        raise ValueError(
            f"resume must come from a run of the same {name}, which may only be shorter; "
            f"its {type(resume.method).__name__} differs from this one"
        )
    x = fresh.method.positions(resume.inner)
    is_same = x.shape[1] == target.dim and np.isclose(
        start_of(x, target, fresh.method)[1][0], resume.log_density, rtol=1e-4
    )
    if not is_same:
        raise ValueError("resume must come from a run on the same target: the log density differs")
