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

from .._checks import as_count, as_single_key
from ..families import Empirical
from ..posterior import Cost, Fit, Posterior, Status
from ..targets import Target
from ..training import Callback, Chunk, ProgressBar, Trouble, early_ratio, find_trouble, wanted
from .base import AbstractMethod, Records

_CHUNK_BYTES = 2**28
"""Positions that a chunk may hold on the device."""


class RunState(NamedTuple):
    """Where a run stands: steps done, the method's state, the positions kept so far, and the early Stein ratio."""

    step: int
    inner: PyTree
    kept: Float[np.ndarray, "t n d"]
    early_ratio: float


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
    - `resume`: the `state` of an earlier `Fit` of the same method with fewer steps.
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
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise ValueError(f"callbacks must be a list of functions of a Chunk, got {callbacks!r}")
    as_count(chunk_size, "chunk_size")
    going = _Going(as_single_key(key), target, method, resume)
    bar = [ProgressBar(type(method).__name__)] if wanted(progress) else []
    try:
        going.on(chunk_size, [*callbacks, *bar])
    finally:
        for drawn in bar:
            drawn.close()
    fit = going.fit()
    if throw and fit.status.kind == "diverged":
        raise RuntimeError(str(fit.status))
    return fit


class _Going:
    """The host's side: chunks, records, positions kept, trouble."""

    def __init__(self, key: PRNGKeyArray, target: Target, method: AbstractMethod, resume: RunState | None):
        self.started = time.perf_counter()
        init_key, self.key = jax.random.split(key)
        self.target, self.method = target, method
        fresh = _init(init_key, target, method)
        self.state = fresh if resume is None else _as_state(resume, fresh)
        self.first = self.state.step
        self.traced = bool(method.keeps(np.arange(method.num_steps)).any())
        self.records: list[dict[str, np.ndarray]] = []
        self.trouble: Trouble | None = None
        self.ending: Status | None = None

    def on(self, chunk_size: int, callbacks: Sequence[Callback]) -> None:
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
        began, step = time.perf_counter(), self.state.step
        count = min(length, end - step)
        inner, records, trace = self._advance(step + count, length)
        arrays = {name: np.asarray(values)[:count] for name, values in records.items()}
        self._find_trouble(arrays, inner)
        if self.trouble is not None:
            # Steps are repeatable: running again up to the fault gives the state before it.
            count = max(0, self.trouble.limit - step)
            inner, _, trace = self._advance(step + count, length)
            arrays = {name: values[: self.trouble.step - step] for name, values in arrays.items()}
        keeps = self.method.keeps(np.arange(step, step + count))
        kept = np.asarray(trace)[:count][keeps] if keeps.any() else self.state.kept[:0]
        self.records.append(arrays)
        self.state = RunState(step + count, inner, np.concatenate([self.state.kept, kept]), self.state.early_ratio)
        now = time.perf_counter()
        loss = float(np.mean(arrays["loss"])) if arrays["loss"].size else float("nan")
        chunk = Chunk(step + count, end, loss, now - self.started, count / (now - began), lambda: [self._posterior()])
        answers = [callback(chunk) for callback in callbacks]
        if any(isinstance(answer, bool | np.bool_) and answer for answer in answers):
            done = f"{self.state.step:,} of {end:,} steps"
            self.ending = Status("interrupted", f"stopped by a callback after {done}")

    def _advance(self, limit: int, length: int) -> tuple[PyTree, Records, Array | None]:
        first, last = (jnp.asarray(t, jnp.int32) for t in (self.state.step, limit))
        return _run_chunk(self.state.inner, self.key, first, last, self.method, self.target, length, self.traced)

    def _find_trouble(self, records: dict[str, np.ndarray], inner: PyTree) -> None:
        loss, ratio = records["loss"], records["stein_ratio"]
        if np.isnan(self.state.early_ratio):
            self.state = self.state._replace(early_ratio=float(early_ratio(ratio[None])[0]))
        finite = bool(jnp.all(jnp.isfinite(self.method.positions(inner))))
        self.trouble = find_trouble(loss, ratio, self.state.early_ratio, finite, self.state.step)

    def fit(self) -> Fit:
        history = {name: np.concatenate([part[name] for part in self.records]) for name in self._names()}
        score_evals = int(history.pop("score_evals", np.zeros(0)).astype(np.int64).sum())
        history = {name: values.astype(float) for name, values in history.items()}
        steps = self.state.step - self.first
        history = {"step": self.first + np.arange(len(history.get("loss", ()))), **history}
        seconds = time.perf_counter() - self.started
        verdict = self.method.verdict(self.state.kept, history)
        limit = Status("step limit", f"ran all {self.method.num_steps:,} steps")
        status = self.ending or verdict.status or limit
        if self.trouble is not None:
            status = self.trouble.status(self.state.step)
        trusted = verdict.trusted and self.ending is None and self.trouble is None
        cost = Cost(seconds, steps, score_evals)
        return Fit(self._posterior(), status, trusted, verdict.diagnostics, history, cost, self.state)

    def _names(self) -> list[str]:
        return list(self.records[0]) if self.records else []

    def _posterior(self) -> Posterior:
        kept = self.state.kept
        points = jnp.asarray(kept.reshape(-1, kept.shape[2])) if len(kept) else self.method.positions(self.state.inner)
        return Posterior(Empirical(points), self.target.coordinates, self.target.layout)


def _init(key: PRNGKeyArray, target: Target, method: AbstractMethod) -> RunState:
    dim = target.dim
    x = jax.random.normal(key, (method.num_points, dim)) if method.start is None else method.start
    if x.shape[1] != dim:
        raise ValueError(f"start must have the target's {dim} coordinates, got {x.shape[1]}")
    inner, finite = _start(x, target, method)
    bad = int(jnp.sum(~finite))
    if bad:
        raise ValueError(
            f"target must be finite where the points start: its log density or score is NaN or infinite at {bad} of "
            f"{len(x)} of them; pass start= or check the log density"
        )
    return RunState(0, inner, np.zeros((0, *x.shape), x.dtype), float("nan"))


@eqx.filter_jit
def _start(x: Float[Array, "n d"], target: Target, method: AbstractMethod) -> tuple[PyTree, Array]:
    """The method's state, and which points have a finite log density and score."""
    value, score = jax.vmap(target.surrogate)(x)
    return method.init(x, target), jnp.isfinite(value) & jnp.all(jnp.isfinite(score), axis=1)


def _as_state(resume: Any, fresh: RunState) -> RunState:
    if not isinstance(resume, RunState):
        raise ValueError(f"resume must be the state of a Fit made by ksivi.run, got {type(resume).__name__}")
    form = lambda tree: (jax.tree.structure(tree), [(a.shape, a.dtype) for a in jax.tree.leaves(tree)])  # noqa: E731
    if form(resume.inner) != form(fresh.inner):
        raise ValueError("resume must come from a run like this one, and its method or target was another")
    return resume


@eqx.filter_jit
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
