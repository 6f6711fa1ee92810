"""`run`: every method that is not a trained sampler, to a `Fit`."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._core.checks import as_count, as_flag, as_single_key, require_callbacks
from .._core.compile import jit
from ..families import Empirical
from ..results import Cost, Fit, Posterior, Status
from ..targets import Target, require_all_rows
from ..training import Callback, Chunk, ProgressBar, Trouble, early_ratio, find_trouble, told_to_stop, wanted
from ._method import AbstractMethod, Records

_CHUNK_BYTES = 2**28
"""Positions that a chunk may hold on the device."""


class RunState(NamedTuple):
    """Where a run stands.

    **Attributes:**

    - `step`: steps done.
    - `inner`: the method's state.
    - `kept`, `records`: the positions kept and the numbers recorded, a part a chunk.
    - `early_ratio`: the Stein ratio of the first steps; trouble is measured against it.
    - `method`: what was run.
    - `log_density`: at the first position, by which the target is known again.
    """

    step: int
    inner: PyTree
    kept: tuple[Float[np.ndarray, "t n d"], ...]
    records: tuple[dict[str, np.ndarray], ...]
    early_ratio: float
    method: AbstractMethod
    log_density: float


def run(
    key: PRNGKeyArray,
    target: Target,
    method: AbstractMethod,
    *,
    chunk_size: int = 100,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    resume: RunState | None = None,
    throw: bool = False,
) -> Fit:
    """Runs a particle method or Markov chains; the posterior is the set of their draws.

    **Arguments:**

    - `key`: one key.
    - `target`: what to draw from. Methods that cannot use minibatches (all but `SGLD` and `SVGD`) use all rows.
    - `method`: `SVGD`, `KSDD`, `MIED`, `SGLD`, `MALA` or `NUTS`.
    - `chunk_size`: about how many steps run between looks at them. Results do not depend on it.
    - `callbacks`: called with a `Chunk` after each chunk; one that returns True ends the run.
    - `progress`: whether to draw a progress bar; when unset, if stderr is a terminal.
    - `resume`: the `state` of an earlier `Fit` of the same method on the same target, with fewer steps or draws.
    - `throw`: raise `RuntimeError` when the run diverges, instead of saying so in its status.

    **Returns:** a `Fit`. Its history is of the state that came into each step.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    fit = ksivi.run(jax.random.key(0), target, ksivi.SVGD(num_particles=50, num_steps=200))
    ```
    """
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    if not isinstance(method, AbstractMethod):
        raise ValueError(f"method must be one of ksivi's methods, such as ksivi.NUTS(), got {method!r}")
    require_callbacks(callbacks)
    chunk_size, throw = as_count(chunk_size, "chunk_size"), as_flag(throw, "throw")
    require_all_rows(target, "run")
    host = _Run(as_single_key(key), target, method, resume)
    bar = [ProgressBar(type(method).__name__)] if wanted(progress) else []
    try:
        host.to_the_end(chunk_size, [*callbacks, *bar])
    finally:
        for drawn in bar:
            drawn.close()
    fit = host.fit()
    if throw and fit.status.kind == "diverged":
        raise RuntimeError(str(fit.status))
    return fit


class _Run:
    """The host's side: chunks, records, positions kept, trouble."""

    def __init__(self, key: PRNGKeyArray, target: Target, method: AbstractMethod, resume: RunState | None):
        self.started = time.perf_counter()
        init_key, self.key = jax.random.split(key)
        self.target, self.method = target, method
        fresh = _init(init_key, target, method)
        self.state = fresh if resume is None else _as_state(resume, fresh, target)
        self.anchor = self.state
        self.first = self.state.step
        self.traced = bool(method.keeps(np.arange(method.num_steps)).any())
        self.trouble: Trouble | None = None
        self.ending: Status | None = None

    def to_the_end(self, chunk_size: int, callbacks: Sequence[Callback]) -> None:
        """Runs chunks to the end, or until trouble, a callback that says so, or Ctrl-C."""
        end, todo = self.method.num_steps, self.method.num_steps - self.first
        if todo <= 0:
            raise ValueError(f"resume must come from a run with fewer steps than {end}, and it has done {self.first}")
        if self.traced:
            chunk_size = max(1, min(chunk_size, _CHUNK_BYTES // self.method.positions(self.state.inner).nbytes))
        length = -(-todo // -(-todo // chunk_size))
        try:
            while self.state.step < end and self.trouble is None and self.ending is None:
                self._chunk(length, end, callbacks)
        except KeyboardInterrupt:
            self.ending = Status("interrupted", f"stopped by the user after {self.state.step:,} of {end:,} steps")

    def _chunk(self, length: int, end: int, callbacks: Sequence[Callback]) -> None:
        began, before = time.perf_counter(), self.state
        after = self._advanced(before, end, length)
        self.trouble = self._find_trouble(before, after)
        if self.trouble is None:
            self.anchor, self.state = before, after
        else:
            # Steps are repeatable: running again from a chunk ago, up to the fault, gives the state before it.
            self.state = self.anchor
            while self.state.step < max(self.first, self.trouble.limit):
                self.state = self._advanced(self.state, self.trouble.limit, length)
        now, count = time.perf_counter(), after.step - before.step
        loss = float(np.mean(after.records[-1]["loss"]))
        speed = count / (now - began)
        chunk = Chunk(self.state.step, end, loss, now - self.started, speed, lambda: [self._posterior()])
        if told_to_stop(callbacks, chunk):
            done = f"{self.state.step:,} of {end:,} steps"
            self.ending = Status("interrupted", f"stopped by a callback after {done}")

    def _advanced(self, state: RunState, limit: int, length: int) -> RunState:
        """The state a chunk later, or at step `limit` if that comes first."""
        count = min(length, limit - state.step)
        first, last = (jnp.asarray(t, jnp.int32) for t in (state.step, state.step + count))
        chunk = _run_chunk(state.inner, self.key, first, last, self.method, self.target, length, self.traced)
        inner, records, trace = chunk
        arrays = {name: np.asarray(values)[:count] for name, values in records.items()}
        keeps = self.method.keeps(np.arange(state.step, state.step + count))
        kept = (*state.kept, np.asarray(trace)[:count][keeps]) if keeps.any() else state.kept
        ratio = float(early_ratio(arrays["stein_ratio"][None])[0]) if np.isnan(state.early_ratio) else state.early_ratio
        return RunState(
            state.step + count, inner, kept, (*state.records, arrays), ratio, self.method, state.log_density
        )

    def _find_trouble(self, before: RunState, after: RunState) -> Trouble | None:
        loss, ratio = after.records[-1]["loss"], after.records[-1]["stein_ratio"]
        finite = bool(jnp.all(jnp.isfinite(self.method.positions(after.inner))))
        return find_trouble(loss, ratio, after.early_ratio, finite, before.step)

    def fit(self) -> Fit:
        seconds = time.perf_counter() - self.started
        history, score_evals = self._history(), 0
        if "score_evals" in history:
            score_evals = int(history.pop("score_evals")[self.first :].sum())
        verdict = self.method.verdict(self._kept(), history)
        status = self.ending or verdict.status or Status("step limit", f"ran all {self.method.num_steps:,} steps")
        if self.trouble is not None:
            status = self.trouble.status(self.state.step)
        trusted = verdict.trusted and self.ending is None and self.trouble is None
        cost = Cost(seconds, self.state.step - self.first, score_evals)
        history = {name: values[self.first :] for name, values in history.items()}
        value = float(_start(self.method.positions(self.state.inner), self.target, self.method)[1][0])
        state = self.state._replace(log_density=value)
        return Fit(self._posterior(), status, trusted, verdict.diagnostics, history, cost, state)

    def _history(self) -> dict[str, np.ndarray]:
        """The numbers recorded from the very first step on."""
        parts = self.state.records or ({"loss": np.zeros(0), "stein_ratio": np.zeros(0)},)
        history = {name: np.concatenate([part[name] for part in parts]).astype(float) for name in parts[0]}
        return {"step": np.arange(self.state.step), **history}

    def _kept(self) -> Float[np.ndarray, "t n d"]:
        x = self.method.positions(self.state.inner)
        return np.concatenate([np.zeros((0, *x.shape), x.dtype), *self.state.kept])

    def _posterior(self) -> Posterior:
        kept = self._kept()
        points = jnp.asarray(kept.reshape(-1, kept.shape[2])) if len(kept) else self.method.positions(self.state.inner)
        return Posterior.of(Empirical(points), self.target)


def _init(key: PRNGKeyArray, target: Target, method: AbstractMethod) -> RunState:
    dim = target.dim
    if method.start is not None and method.start.shape[1] != dim:
        raise ValueError(f"start must have the target's {dim} coordinates, got {method.start.shape[1]}")
    x = jax.random.normal(key, (method.num_points, dim)) if method.start is None else method.start
    if method.start is not None and target.coordinates is not None:
        x = jax.vmap(target.coordinates.inverse)(x)
    inner, value, finite = _start(x, target, method)
    bad = int(jnp.sum(~finite))
    if bad:
        raise ValueError(
            f"target must be finite where the points start: its log density or score is NaN or infinite at {bad} of "
            f"{len(x)} of them; pass start= or check the log density"
        )
    return RunState(0, inner, (), (), float("nan"), method, float(value[0]))


@jit
def _start(x: Float[Array, "n d"], target: Target, method: AbstractMethod) -> tuple[PyTree, Array, Array]:
    """The method's state, the log density (or what stands for it), and which points have one and a score."""
    value, score = jax.vmap(target.surrogate)(x)
    return method.init(x, target), value, jnp.isfinite(value) & jnp.all(jnp.isfinite(score), axis=1)


def _as_state(resume: Any, fresh: RunState, target: Target) -> RunState:
    if not isinstance(resume, RunState):
        raise ValueError(f"resume must be the state of a Fit made by ksivi.run, got {type(resume).__name__}")
    if not fresh.method.same_but_longer(resume.method):
        raise ValueError(
            f"resume must come from a run of this {type(fresh.method).__name__} but for its length, "
            f"and it was another {type(resume.method).__name__}"
        )
    x = fresh.method.positions(resume.inner)
    if x.shape[1] != target.dim or not np.isclose(_start(x, target, fresh.method)[1][0], resume.log_density, rtol=1e-4):
        raise ValueError("resume must come from a run on this target, and its log density was another")
    return resume


@jit
def _run_chunk(
    inner: PyTree,
    key: PRNGKeyArray,
    first: Int[Array, ""],
    limit: Int[Array, ""],
    method: AbstractMethod,
    target: Target,
    length: int,
    traced: bool,
) -> tuple[PyTree, Records, Float[Array, "t n d"] | None]:
    """A chunk of steps, of which those from step `limit` on are not run; records, and positions after each step."""

    def advance(inner: PyTree, step: Int[Array, ""]) -> tuple[PyTree, Records]:
        return method.step(jax.random.fold_in(key, step), inner, target, step)

    nothing = eqx.filter_eval_shape(lambda: advance(inner, first)[1])

    def idle(inner: PyTree, step: Int[Array, ""]) -> tuple[PyTree, Records]:
        return inner, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), nothing)

    def body(inner: PyTree, step: Int[Array, ""]) -> tuple[PyTree, tuple[Records, Array | None]]:
        inner, records = lax.cond(step < limit, advance, idle, inner, step)
        return inner, (records, method.positions(inner) if traced else None)

    inner, (records, trace) = lax.scan(body, inner, first + jnp.arange(length))
    return inner, records, trace
