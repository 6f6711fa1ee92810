"""`train`: the algorithm as written, nothing added and nothing hidden."""

import os
from collections.abc import Sequence
from typing import Literal

import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, Scalar

from .._core.checks import (
    as_choice,
    as_count,
    as_flag,
    as_floats,
    as_keys,
    as_positive,
    attributing_errors_to,
    require_callbacks,
)
from .._core.sharding import as_mesh, use_mesh
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..results import Fit, gathered, raise_if_diverged
from ..targets import Target
from ._callbacks import Callback
from ._checkpoints import as_checkpoints
from ._host import Host, Progress
from ._outcome import fits_of
from ._progress import ProgressBar, show_progress
from ._signals import handle_sigterm
from ._snapshots import restored
from ._start import Initializer, with_sharded_rows
from ._step import Optimizer, TrainState
from ._training import new_training


def train(
    key: PRNGKeyArray,
    target: Target | list[Target],
    family: SemiImplicit | Initializer | list[SemiImplicit],
    objective: AbstractObjective | list[AbstractObjective],
    *,
    num_steps: int,
    optimizer: Optimizer | None = None,
    learning_rate: float | Array | None = None,
    ema: float | None = None,
    chunk_size: int = 500,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    resume: TrainState | Sequence[TrainState] | None = None,
    throw: bool = False,
    mesh: Mesh | None = None,
    nonfinite: Literal["stop", "skip"] = "stop",
    checkpoint: str | os.PathLike | None = None,
    every: int | None = None,
) -> Fit | list[Fit]:
    """Minimises an objective over a family by stochastic gradients.

    **Arguments:**

    - `key`: one key, or a batch of keys to train that many runs at once.
    - `target`: what to approximate.
    - `family`: where to start; a function of a key gives each run a start of its own.
    - `objective`: such as `KSIVI`.
    - `num_steps`: the step to stop at, counted from the very beginning when resuming.
    - `optimizer`: any Optax transformation, with its schedules, clipping and groups, or a function that makes one from
        `learning_rate`; Adam unless given.
    - `learning_rate`: the number that `optimizer` is a function of; 1e-3 unless given. Keys may have one each.
    - `ema`: the decay of an exponential moving average of the parameters, from their start on, which the posterior
        then uses.
    - `chunk_size`: about how many steps run between looks at the loss. Results do not depend on it.
    - `callbacks`: called with a `Chunk` after each chunk; one that returns True ends the run.
    - `progress`: whether to draw a progress bar; when unset, if stderr is a terminal.
    - `resume`: the `state` of an earlier `Fit`. With the same key the run equals an unbroken one, on a CPU bit for
        bit.
    - `throw`: raise `RuntimeError` when a run diverges, instead of saying so in its status.
    - `mesh`: several devices, of one process or many, by what they divide: `jax.make_mesh((8,), ("samples",))`, or
        `"seeds"` for a batch of keys, or `"data"` for the rows of `Target.from_data`, or several of these. Results are
        those of one device but for the order of sums.
    - `nonfinite`: what to do at a step whose loss or gradient is NaN or infinite: `"stop"` there, with the last good
        parameters, or `"skip"` it, which changes nothing but the count in `fit.diagnostics.skipped_steps`; more than
        5% of a chunk end the run all the same. `fit.diagnostics.not_finite` says what was seen at the step that
        ended it: which quantity, in which coordinates, at which share of the draws.
    - `checkpoint`: a folder for snapshots of the run. Where it holds some, the run goes on from the last good one, and
        ends with the same numbers as if it had never stopped; so the same call again is how to resume. Ctrl-C and
        SIGTERM leave one of the last whole chunk, and SIGTERM then ends the process with exit code 143. The folder of
        another run is refused.
    - `every`: steps between snapshots, a hundredth of `num_steps` unless given.

    With a batch of keys, `target`, `family` and `objective` may be lists with one a key, alike but for their numbers:
    data sets of one shape, starts, weights. They are trained at once, by one program.

    **Returns:** a `Fit`, or a list of them for a batch of keys.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3)
    fit = ksivi.train(jax.random.key(1), target, family, ksivi.KSIVI(num_samples=50), num_steps=200)
    ```
    """
    key = _check_arguments(key, target, family, objective, num_steps, chunk_size)
    _check_options(ema, callbacks)
    optimizer, rate = _check_optimizer(key, optimizer, learning_rate)
    skip = as_choice(nonfinite, "nonfinite", ("stop", "skip")) == "skip"
    checkpoints = as_checkpoints(checkpoint, every, num_steps)
    throw = as_flag(throw, "throw")
    bar = [ProgressBar()] if show_progress(progress) else []
    watching: list[Callback] = [*callbacks, *bar]
    try:
        with handle_sigterm(checkpoint is not None), use_mesh(as_mesh(mesh)):
            targets = (
                [with_sharded_rows(one) for one in target]
                if isinstance(target, list)
                else with_sharded_rows(target)
            )
            parts = (key, targets, family, objective, optimizer, rate, ema, resume)
            training, start = new_training(*parts, skip_nonfinite=skip)
            done, save = restored(
                checkpoints, start, training.made_of(key, targets, objective, rate, resume)
            )
            _require_more_steps(done, num_steps)
            chunk_size = chunk_size if checkpoints is None else min(chunk_size, checkpoints.every)
            done = Host(training, save).until(done, num_steps, chunk_size, watching)
            save(done, None)
            fits = fits_of(training, done)
        fits = [gathered(fit) for fit in fits]
    finally:
        for drawn in bar:
            drawn.close()
    raise_if_diverged(fits, throw)
    return fits if training.batched else fits[0]


def _require_more_steps(progress: Progress, num_steps: int) -> None:
    has_begun = progress.step > progress.first
    if num_steps < progress.step + (not has_begun):
        raise ValueError(
            f"num_steps must be more than the {progress.step} steps already done, got {num_steps}"
        )


def _check_arguments(key, target, family, objective, num_steps, chunk_size) -> PRNGKeyArray:
    key = as_keys(key)
    for name, part in {"target": target, "family": family, "objective": objective}.items():
        if isinstance(part, list) and key.shape != (len(part),):
            raise ValueError(
                f"{name} may be a list with one a key: got {len(part)} for keys of shape {key.shape}"
            )
    for one in target if isinstance(target, list) else [target]:
        if not isinstance(one, Target):
            raise ValueError(f"target must be a ksivi.Target, got {type(one).__name__}")
    for one in objective if isinstance(objective, list) else [objective]:
        if not isinstance(one, AbstractObjective):
            raise ValueError(
                f"objective must be one of ksivi's objectives, such as ksivi.KSIVI(), got {one!r}"
            )
    as_count(num_steps, "num_steps")
    as_count(chunk_size, "chunk_size")
    return key


def _check_optimizer(key, optimizer, rate) -> tuple[Optimizer, Scalar | list[Scalar] | None]:
    """The optimiser and its learning rate: one, or a list with one a key."""
    if isinstance(optimizer, optax.GradientTransformation):
        if rate is not None:
            raise ValueError(
                f"learning_rate must be unset for an optimizer that has its own, got {rate!r}"
            )
        return optimizer, None
    if optimizer is not None and not callable(optimizer):
        raise ValueError(
            f"optimizer must be an Optax transformation, such as optax.adam(1e-3), got {optimizer!r}"
        )
    rate = as_floats(
        1e-3 if rate is None else rate, "learning_rate", "one positive number, or one a key"
    )
    shape = rate.shape
    if shape not in ((), key.shape):
        raise ValueError(
            f"learning_rate must be one number, or one for each of the {key.size} keys, got shape {shape}"
        )
    rates = [as_positive(one, "learning_rate") for one in np.atleast_1d(rate)]
    optimizer = optimizer or optax.adam
    with attributing_errors_to("optimizer"):
        made = optimizer(rates[0])
    if not isinstance(made, optax.GradientTransformation):
        raise ValueError(
            f"optimizer must make an Optax transformation from a learning rate, and it made {made!r}"
        )
    return optimizer, rates if shape else rates[0]


def _check_options(ema, callbacks) -> None:
    if ema is not None and not (isinstance(ema, int | float | np.floating) and 0 <= ema < 1):
        raise ValueError(f"ema must be a decay in [0, 1), got {ema!r}")
    require_callbacks(callbacks)
