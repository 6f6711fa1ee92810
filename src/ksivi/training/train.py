"""`train`: the algorithm as written, nothing added and nothing hidden."""

from collections.abc import Sequence

import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from .._checks import as_count, as_key
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..posterior import Fit
from ..targets import Target
from .loop import TrainState
from .progress import ProgressBar, wanted
from .run import Callback, Run
from .start import Initializer


def train(
    key: PRNGKeyArray,
    target: Target,
    family: SemiImplicit | Initializer,
    objective: AbstractObjective,
    *,
    num_steps: int,
    optimizer: optax.GradientTransformation | None = None,
    ema: float | None = None,
    chunk_size: int = 500,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    resume: TrainState | Sequence[TrainState] | None = None,
    throw: bool = False,
) -> Fit | list[Fit]:
    """Minimises an objective over a family by stochastic gradients.

    **Arguments:**

    - `key`: one key, or a batch of keys to train that many runs at once.
    - `target`: what to approximate.
    - `family`: where to start; a function of a key gives each run a start of its own.
    - `objective`: such as `KSIVI`.
    - `num_steps`: the step to stop at, counted from the very beginning when resuming.
    - `optimizer`: any Optax transformation, with its schedules, clipping and groups; Adam at 1e-3 unless given.
    - `ema`: the decay of an exponential moving average of the parameters, from their start on, which the posterior
        then uses.
    - `chunk_size`: about how many steps run between looks at the loss. Results do not depend on it.
    - `callbacks`: called with a `Chunk` after each chunk; one that returns True ends the run.
    - `progress`: whether to draw a progress bar; when unset, if stderr is a terminal.
    - `resume`: the `state` of an earlier `Fit`. With the same key the run equals an unbroken one bit for bit.
    - `throw`: raise `RuntimeError` when a run diverges, instead of saying so in its status.

    **Returns:** a `Fit`, or a list of them for a batch of keys.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3)
    fit = ksivi.train(jax.random.key(1), target, family, ksivi.KSIVI(num_samples=50), num_steps=200)
    ```
    """
    key = _check_arguments(key, target, objective, num_steps, chunk_size)
    _check_options(optimizer, ema, callbacks)
    run = Run(key, target, family, objective, optimizer, ema, resume)
    bar = [ProgressBar()] if wanted(progress) else []
    try:
        run.until(num_steps, chunk_size, [*callbacks, *bar])
    finally:
        for drawn in bar:
            drawn.close()
    fits = run.fits()
    if throw:
        for fit in fits:
            if fit.status.kind == "diverged":
                raise RuntimeError(str(fit.status))
    return fits if run.batched else fits[0]


def _check_arguments(key, target, objective, num_steps, chunk_size) -> PRNGKeyArray:
    key = as_key(key)
    if key.ndim > 1 or key.size == 0:
        raise ValueError(f"key must be one key or a flat batch of keys, got shape {key.shape}")
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not isinstance(objective, AbstractObjective):
        raise ValueError(f"objective must be one of ksivi's objectives, such as ksivi.KSIVI(), got {objective!r}")
    as_count(num_steps, "num_steps")
    as_count(chunk_size, "chunk_size")
    return key


def _check_options(optimizer, ema, callbacks) -> None:
    if optimizer is not None and not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(f"optimizer must be an Optax transformation, such as optax.adam(1e-3), got {optimizer!r}")
    if ema is not None and not (isinstance(ema, int | float | np.floating) and 0 <= ema < 1):
        raise ValueError(f"ema must be a decay in [0, 1), got {ema!r}")
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise ValueError(f"callbacks must be a list of functions of a Chunk, got {callbacks!r}")
