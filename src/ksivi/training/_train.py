"""`train`: minimises an objective exactly as the paper states it."""

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
from .._core.programs import program_cache
from .._core.sharding import as_mesh, use_mesh
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..results import Fit, gathered, raise_if_diverged
from ..targets import Target
from ._callbacks import Callback
from ._checkpoints import as_checkpoints
from ._host import Host
from ._outcome import fits_of
from ._progress import ProgressBar, show_progress
from ._signals import handle_sigterm
from ._snapshots import restored
from ._start import Initializer, with_sharded_rows
from ._step import Optimizer, TrainState
from ._task import Progress
from ._training import new_training


@program_cache()
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

    - `key`: one key, or a batch of keys to train one run per key.
    - `target`: the density to approximate.
    - `family`: the family to train, from its current parameters. A function of a key gives each run
        its own start.
    - `objective`: the loss to minimise, such as `KSIVI`.
    - `num_steps`: number of training steps, including those of an earlier run that is resumed.
    - `optimizer`: any Optax transformation, or a function that makes one from `learning_rate`.
        Default: Adam.
    - `learning_rate`: the argument of the function `optimizer`; one number, or one per key.
        Default: 1e-3.
    - `ema`: the decay of an exponential moving average of the parameters. The posterior then uses
        the average.
    - `chunk_size`: approximate number of steps between two looks at the loss. Results do not depend
        on it.
    - `callbacks`: each is called with a `Chunk` after every chunk. One that returns True ends the
        run.
    - `progress`: whether to show a progress bar. Default: only if stderr is a terminal.
    - `resume`: the `state` of an earlier `Fit`, or a list with one per key. With the same key, the
        run equals an uninterrupted one, on a CPU bit for bit.
    - `throw`: raise `RuntimeError` if a run diverges, instead of reporting it in the status.
    - `mesh`: several devices, of one or more processes, such as
        `jax.make_mesh((8,), ("samples",))`. The axis `samples` divides the draws of a step, `seeds`
        a batch of keys, and `data` the rows of `Target.from_data`. Results are those of one device
        except for the order of sums.
    - `nonfinite`: what to do at a step whose loss or gradient is NaN or infinite. `"stop"` ends the
        run with the last good parameters. `"skip"` leaves the parameters as they are and counts the
        step in `fit.diagnostics.skipped_steps`; if more than 5% of a chunk are skipped, the run
        ends. `fit.diagnostics.not_finite` reports which quantity was not finite, in which
        coordinates, and at which share of the draws.
    - `checkpoint`: a folder for snapshots of the run. The same call again resumes from the last
        good one and gives the same result as an uninterrupted run. Ctrl-C and SIGTERM save a
        snapshot; SIGTERM then ends the process with exit code 143. The folder of a different run
        raises `ValueError`.
    - `every`: number of steps between snapshots. Default: a hundredth of `num_steps`.

    With a batch of keys, `target`, `family` and `objective` may be lists with one per key, such as
    data sets of the same shape. All must have the same structure. One program trains them together.

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
                checkpoints, start, training.arguments(key, targets, objective, rate, resume)
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
    has_started = progress.step > progress.first
    if num_steps < progress.step + (not has_started):
        raise ValueError(
            f"num_steps must be more than the {progress.step} steps already done, got {num_steps}"
        )


def _check_arguments(key, target, family, objective, num_steps, chunk_size) -> PRNGKeyArray:
    key = as_keys(key)
    for name, part in {"target": target, "family": family, "objective": objective}.items():
        if isinstance(part, list) and key.shape != (len(part),):
            raise ValueError(
                f"{name} must be a list with one per key, "
                f"got {len(part)} for keys of shape {key.shape}"
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
    """The optimiser and its learning rate: one number, or a list with one per key."""
    if isinstance(optimizer, optax.GradientTransformation):
        if rate is not None:
            raise ValueError(
                f"learning_rate must be unset if optimizer is an Optax transformation, got {rate!r}"
            )
        return optimizer, None
    if optimizer is not None and not callable(optimizer):
        raise ValueError(
            "optimizer must be an Optax transformation, such as optax.adam(1e-3), "
            f"got {optimizer!r}"
        )
    rate = as_floats(
        1e-3 if rate is None else rate, "learning_rate", "one positive number, or one per key"
    )
    shape = rate.shape
    if shape not in ((), key.shape):
        raise ValueError(
            f"learning_rate must be one number, or one per key ({key.size}), got shape {shape}"
        )
    rates = [as_positive(one, "learning_rate") for one in np.atleast_1d(rate)]
    optimizer = optimizer or optax.adam
    with attributing_errors_to("optimizer"):
        made = optimizer(rates[0])
    if not isinstance(made, optax.GradientTransformation):
        raise ValueError(
            f"optimizer must make an Optax transformation from a learning rate, but made {made!r}"
        )
    return optimizer, rates if shape else rates[0]


def _check_options(ema, callbacks) -> None:
    if ema is not None and not (isinstance(ema, int | float | np.floating) and 0 <= ema < 1):
        raise ValueError(f"ema must be a decay in [0, 1), got {ema!r}")
    require_callbacks(callbacks)
