"""`train`: the algorithm as written, nothing added and nothing hidden."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._checks import as_count, as_key
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..posterior import Cost, Fit, Posterior, Status
from ..targets import Target
from .closures import Structural
from .loop import Problem, TrainState, chunk_shape, initial_state, run_many, run_one, split_family
from .progress import ProgressBar, wanted
from .trouble import Trouble, find_trouble

Initializer = Callable[[PRNGKeyArray], SemiImplicit]


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What a callback sees after each chunk of steps.

    **Attributes:**

    - `step`, `num_steps`: how far the run is.
    - `loss`: its mean over the chunk (and over the runs, for a batch of keys).
    - `seconds`: since the start.
    - `steps_per_second`: over this chunk.
    - `posteriors`: makes the current posterior of every run.
    """

    step: int
    num_steps: int
    loss: float
    seconds: float
    steps_per_second: float
    posteriors: Callable[[], list[Posterior]]


Callback = Callable[[Chunk], Any]


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
    - `ema`: the decay of an exponential moving average of the parameters, which the posterior then uses.
    - `chunk_size`: about how many steps run between looks at the loss, callbacks and Ctrl-C. Results do not depend on it.
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
    key = _check_arguments(key, target, objective, num_steps, chunk_size, ema)
    run = _Run(key, target, family, objective, optimizer, ema, resume)
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


class _Run:
    """The host's side of training: chunks, records, trouble. Runs of a batch share their leading axis."""

    def __init__(self, key, target, family, objective, optimizer, ema, resume):
        self.batched = key.ndim == 1
        self.num_runs = len(key) if self.batched else 1
        init_key, start_key, self.key = _split_three(key)
        params, frozen = _start(family, init_key)
        optimizer = Structural(optax.adam(1e-3) if optimizer is None else optimizer)
        decay = None if ema is None else jnp.asarray(ema, jnp.result_type(float))
        self.problem = Problem(target, objective, frozen, decay, optimizer)
        self._require_dim(params)
        if resume is None:
            make = eqx.filter_vmap(initial_state, in_axes=(0, None, 0)) if self.batched else initial_state
            self.state = make(start_key, self.problem, params)
            _require_finite_start(self.problem, params, start_key, self.batched)
        else:
            self.state = _as_state(resume, self.num_runs, self.batched)
        self.limits = np.full(self.num_runs, np.iinfo(np.int32).max)
        self.troubles: list[Trouble | None] = [None] * self.num_runs
        self.records: dict[str, list[np.ndarray]] = {}
        self.first = self.step = int(np.max(np.asarray(self.state.step)))
        self.ending: Status | None = None
        self.started = time.perf_counter()

    def until(self, num_steps: int, chunk_size: int, callbacks: Sequence[Callback]) -> None:
        """Runs chunks up to `num_steps`, or until all runs are in trouble, a callback says so, or Ctrl-C."""
        todo = num_steps - self.step
        if todo <= 0:
            raise ValueError(f"num_steps must be more than the {self.step} steps already done, got {num_steps}")
        one = self._one(self.state.params)
        shape = chunk_shape(self.problem, one, todo, chunk_size)
        try:
            while self.step < num_steps and None in self.troubles and self.ending is None:
                self._chunk(num_steps, shape, callbacks)
        except KeyboardInterrupt:
            self.ending = Status("interrupted", f"stopped by the user after {self.step:,} of {num_steps:,} steps")
        self.ending = self.ending or Status("step limit", f"ran all {num_steps:,} steps")

    def fits(self) -> list[Fit]:
        seconds = time.perf_counter() - self.started
        return [self._fit(i, seconds) for i in range(self.num_runs)]

    def _chunk(self, num_steps: int, shape: tuple[int, int], callbacks: Sequence[Callback]) -> None:
        began = time.perf_counter()
        limits = np.minimum(self.limits, num_steps)
        state, records = self._advance(limits, shape)
        count = min(shape[0] * shape[1], num_steps - self.step)
        records = {name: np.atleast_2d(np.asarray(values))[:, :count] for name, values in records.items()}
        for name, values in records.items():
            self.records.setdefault(name, []).append(values)
        state = self._guard(state, records, limits, shape)
        self.state, self.step = state, self.step + count
        now = time.perf_counter()
        alive = [i for i, trouble in enumerate(self.troubles) if trouble is None]
        loss = float(np.mean(records["loss"][alive])) if alive else float("nan")
        chunk = Chunk(self.step, num_steps, loss, now - self.started, count / (now - began), self._posteriors)
        if any([callback(chunk) is True for callback in callbacks]):
            self.ending = Status("interrupted", f"stopped by a callback after {self.step:,} of {num_steps:,} steps")

    def _advance(self, limits: np.ndarray, shape: tuple[int, int]) -> tuple[TrainState, dict[str, Array]]:
        limits = limits.astype(np.int32)
        run, limit = (run_many, jnp.asarray(limits)) if self.batched else (run_one, jnp.asarray(limits[0]))
        return run(self.state, self.key, limit, self.problem, shape)

    def _guard(self, state: TrainState, records: dict, limits: np.ndarray, shape: tuple[int, int]) -> TrainState:
        """Finds runs that went wrong in this chunk, and takes them back to their last good parameters."""
        finite = np.atleast_1d(np.asarray(_finite(state.params, self.batched)))
        found = find_trouble(records, [values[0] for values in (self.records["stein_ratio"],)][0], finite, self.step)
        new = [i for i, trouble in enumerate(found) if trouble is not None and self.troubles[i] is None]
        if not new:
            return state
        for i in new:
            self.troubles[i] = found[i]
        # Steps are repeatable, so the parameters before the fault are had by running up to it again. A gradient can
        # go wrong one step before the loss shows it.
        for back in (0, 1, shape[0] * shape[1]):
            for i in new:
                self.limits[i] = max(self.step, found[i].limit - back)
            state, _ = self._advance(np.minimum(self.limits, limits), shape)
            if np.all(np.asarray(_finite(state.params, self.batched))):
                break
        return state

    def _fit(self, i: int, seconds: float) -> Fit:
        state, trouble = self._pick(self.state, i), self.troubles[i]
        last = self.step if trouble is None else min(self.step, trouble.step + 1)
        history = {name: np.concatenate(values, axis=1)[i, : last - self.first] for name, values in self.records.items()}
        history = {"step": np.arange(self.first, last), **history}
        status = self.ending if trouble is None else trouble.status(int(state.step))
        assert status is not None
        steps = last - self.first
        cost = Cost(seconds, steps, steps * self.problem.objective.score_evals)
        tail = history["stein_ratio"][-100:]
        diagnostics = {"stein ratio": float(np.mean(tail)) if tail.size else float("nan")}
        return Fit(self._posterior(state), status, False, diagnostics, history, cost, state)

    def _posterior(self, state: TrainState) -> Posterior:
        params = state.params if state.average is None else state.average
        target = self.problem.target
        return Posterior(self.problem.family(params), target.coordinates, target.layout)

    def _posteriors(self) -> list[Posterior]:
        return [self._posterior(self._pick(self.state, i)) for i in range(self.num_runs)]

    def _one(self, tree: PyTree) -> PyTree:
        return self._pick(tree, 0)

    def _pick(self, tree: PyTree, i: int) -> PyTree:
        return jax.tree.map(lambda a: a[i], tree) if self.batched else tree

    def _require_dim(self, params: PyTree) -> None:
        dim = self.problem.family(self._one(params)).dim
        if dim != self.problem.target.dim:
            raise ValueError(f"family must have the target's dim {self.problem.target.dim}, got dim {dim}")


def _check_arguments(key, target, objective, num_steps, chunk_size, ema) -> PRNGKeyArray:
    key = as_key(key)
    if key.ndim > 1 or key.size == 0:
        raise ValueError(f"key must be one key or a flat batch of keys, got shape {key.shape}")
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not isinstance(objective, AbstractObjective):
        raise ValueError(f"objective must be one of ksivi's objectives, such as ksivi.KSIVI(), got {objective!r}")
    as_count(num_steps, "num_steps")
    as_count(chunk_size, "chunk_size")
    if ema is not None and not 0 <= ema < 1:
        raise ValueError(f"ema must be a decay in [0, 1), got {ema}")
    return key


def _split_three(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    if key.ndim == 0:
        return tuple(jax.random.split(key, 3))
    keys = jax.vmap(lambda k: jax.random.split(k, 3))(key)
    return keys[:, 0], keys[:, 1], keys[:, 2]


def _start(family: SemiImplicit | Initializer, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
    """Trained parameters (stacked for a batch of keys) and the rest of the family."""
    first = key if key.ndim == 0 else key[0]
    example = family if isinstance(family, SemiImplicit) else family(first) if callable(family) else None
    if not isinstance(example, SemiImplicit):
        raise ValueError(f"family must be a ksivi.SemiImplicit, or a function of a key that gives one, got {family!r}")
    params, frozen = split_family(example)
    if key.ndim == 0:
        return params, frozen
    if isinstance(family, SemiImplicit):
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (len(key), *a.shape)), params), frozen
    return eqx.filter_vmap(lambda k: split_family(family(k))[0])(key), frozen


def _as_state(resume: TrainState | Sequence[TrainState], num_runs: int, batched: bool) -> TrainState:
    states = list(resume) if isinstance(resume, Sequence) else [resume]
    if not all(isinstance(state, TrainState) for state in states):
        raise ValueError(f"resume must be the state of a Fit (or a list of them), got {resume!r}")
    if len(states) != num_runs or batched != isinstance(resume, Sequence):
        raise ValueError(f"resume must hold one state a key: {num_runs} keys, {len(states)} states")
    steps = {int(state.step) for state in states}
    if len(steps) > 1:
        raise ValueError(f"resume must hold states at one step, got steps {sorted(steps)}")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states) if batched else states[0]


def _require_finite_start(problem: Problem, params: PyTree, key: PRNGKeyArray, batched: bool) -> None:
    if batched:
        params, key = jax.tree.map(lambda a: a[0], params), key[0]
    bad, total = _count_bad_scores(problem, params, key)
    if bad:
        raise ValueError(
            f"target must have a finite score where the family starts: it is NaN or infinite at {bad} of {total} draws "
            "of the untrained family; start closer (log_var, loc) or check the log density"
        )


@eqx.filter_jit
def _count_bad_scores(problem: Problem, params: PyTree, key: PRNGKeyArray, total: int = 100) -> tuple[Array, int]:
    sample_key, rows_key = jax.random.split(key)
    x = problem.family(params).sample(sample_key, total)
    score = jax.vmap(problem.target.minibatch(rows_key).score)(x)
    return jnp.sum(~jnp.all(jnp.isfinite(score), axis=1)), total


@eqx.filter_jit
def _finite(params: PyTree, batched: bool) -> Array:
    axes = lambda a: tuple(range(1 if batched else 0, a.ndim))  # noqa: E731
    return jnp.stack([jnp.all(jnp.isfinite(a), axis=axes(a)) for a in jax.tree.leaves(params)]).all(axis=0)
