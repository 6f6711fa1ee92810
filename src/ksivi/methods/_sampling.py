"""A method as a task of the host loop: it runs chunks of steps and makes fits."""

import dataclasses
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._core.compile import jit, on_cores, one_shot
from .._core.sharding import platform_of
from ..families import Empirical
from ..results import Code, Cost, Fit, Posterior, Status
from ..targets import Target
from ..training import ChunkResult, Progress, Task
from ._method import AbstractMethod, Records

_CHUNK_BYTES = 2**28
"""Maximum size of the positions that a chunk keeps on the device."""


class RunState(NamedTuple):
    """The state of a run, from which it can be resumed.

    **Attributes:**

    - `step`: the number of steps done.
    - `inner`: the method's state.
    - `kept`, `records`: the kept positions and the recorded numbers, one part per call.
    - `early_ratio`: the Stein ratio of the first steps. Later ratios are compared with it.
    - `method`: the method that was run.
    - `log_density`: the log density at the first position, to recognise the target.
    """

    step: int
    inner: PyTree
    kept: tuple[Float[np.ndarray, "t n d"], ...]
    records: tuple[dict[str, np.ndarray], ...]
    early_ratio: float
    method: AbstractMethod
    log_density: float


class MethodState(eqx.Module):
    """The number of the next step, and the method's state."""

    step: Int[Array, ""]
    inner: PyTree


@dataclasses.dataclass(frozen=True)
class Sampling(Task):
    """A run of a method with one key, or with a batch of keys.

    **Attributes:**

    - `key`: the key of the steps, or one per run.
    - `starts`: the start of each run, which may be the state of an earlier fit.
    - `keeps_positions`: whether positions before the last step become draws.
    """

    key: PRNGKeyArray
    target: Target
    method: AbstractMethod
    starts: tuple[RunState, ...]
    batched: bool
    keeps_positions: bool

    def progress(self) -> Progress:
        """The progress at the start of the call."""
        states = [MethodState(jnp.asarray(one.step, jnp.int32), one.inner) for one in self.starts]
        state = _stack(states) if self.batched else states[0]
        return Progress.at(state, np.array([one.early_ratio for one in self.starts]))

    def chunk_shape(self, num_steps, chunk_size):
        if self.keeps_positions:
            size = self.method.positions(self.starts[0].inner).nbytes * len(self.starts)
            chunk_size = max(1, min(chunk_size, _CHUNK_BYTES // size))
        return 1, -(-num_steps // -(-num_steps // chunk_size))

    def advance(self, state, limits, shape, rate):
        limits = jnp.asarray(limits.astype(np.int32))
        settings = (self.method, self.target, shape[1], self.keeps_positions)
        if not self.batched:
            return _run_chunk(state, self.key, limits[0], *settings)
        args, chunks = (state, self.key, limits, *settings), None
        if platform_of(jax.tree.leaves((state, self.key))) == "cpu":
            chunks = _run_on_cores(len(self.starts), *args)
        return _run_together(*args) if chunks is None else _stack(chunks)

    def keeps(self, steps):
        return self.method.keeps(steps)

    def posterior(self, progress, i):
        kept, state = self._kept(progress, i), self.pick(progress.state, i)
        points = (
            jnp.asarray(kept.reshape(-1, kept.shape[2]))
            if len(kept)
            else self.method.positions(state.inner)
        )
        return Posterior.of(Empirical(points), self.target)

    def arguments(self, key: PRNGKeyArray, resume: Any) -> dict[str, Any]:
        """The arguments that identify this run, for checkpoints."""
        return {"key": key, "target": self.target, "method": self.method, "resume": resume}

    def fits(self, progress: Progress) -> list[Fit]:
        """The fit of every run, up to its last step or to the last good state."""
        seconds = time.perf_counter() - progress.started
        return [self._fit(progress, i, seconds) for i in range(len(self.starts))]

    def _fit(self, progress: Progress, i: int, seconds: float) -> Fit:
        state, trouble, first = self.pick(progress.state, i), progress.troubles[i], progress.first
        step, history, score_evals = int(state.step), self._history(progress, i), 0
        if "score_evals" in history:
            score_evals = int(history.pop("score_evals")[first:].sum())
        verdict = self.method.verdict(self._kept(progress, i), history)
        limit = Code.STEP_LIMIT.doubt(f"ran all {self.method.num_steps:,} steps")
        status = progress.ending or verdict.status or Status.of_doubts("step limit", [limit])
        status = status if trouble is None else trouble.status(step)
        trusted = verdict.trusted and progress.ending is None and trouble is None
        cost = Cost(seconds, step - first, score_evals)
        history = {name: values[first:] for name, values in history.items()}
        resumable = self._run_state(progress, i, state)
        posterior = self.posterior(progress, i)
        return Fit(posterior, status, trusted, verdict.diagnostics, history, cost, resumable)

    def _run_state(self, progress: Progress, i: int, state: MethodState) -> RunState:
        start, step = self.starts[i], int(state.step)
        records = {
            name: progress.recorded(name)[i, : step - progress.first]
            for name in self._names(progress)
        }
        kept = self._kept(progress, i)
        value = float(start_of(self.method.positions(state.inner), self.target, self.method)[1][0])
        parts = (*start.records, records) if step > start.step else start.records
        early = float(progress.early_ratio[i])
        return RunState(
            step, state.inner, (kept,) if len(kept) else (), parts, early, self.method, value
        )

    def _names(self, progress: Progress) -> list[str]:
        return list(progress.records[0]) if progress.records else []

    def _history(self, progress: Progress, i: int) -> dict[str, np.ndarray]:
        """The recorded numbers from step 0 on."""
        step = int(self.pick(progress.state, i).step)
        parts = [*self.starts[i].records]
        if progress.records:
            parts.append(
                {
                    name: progress.recorded(name)[i, : step - progress.first]
                    for name in self._names(progress)
                }
            )
        parts = parts or [{"loss": np.zeros(0), "stein_ratio": np.zeros(0)}]
        history = {
            name: np.concatenate([part[name] for part in parts]).astype(float) for name in parts[0]
        }
        return {"step": np.arange(step), **history}

    def _kept(self, progress: Progress, i: int) -> Float[np.ndarray, "t n d"]:
        """The positions that became draws, from step 0 on, without those after trouble."""
        state = self.pick(progress.state, i)
        x, first = self.method.positions(state.inner), progress.first
        count = int(self.method.keeps(np.arange(first, max(first, int(state.step)))).sum())
        here = np.concatenate(
            [np.zeros((0, *x.shape), x.dtype), *(part[i] for part in progress.kept)]
        )[:count]
        return np.concatenate([np.zeros((0, *x.shape), x.dtype), *self.starts[i].kept, here])


@jit
def start_of(
    x: Float[Array, "n d"], target: Target, method: AbstractMethod
) -> tuple[PyTree, Array, Array]:
    """The method's state, the log density or its surrogate, and which points are finite."""
    value, score = jax.vmap(target.surrogate)(x)
    return method.init(x, target), value, jnp.isfinite(value) & jnp.all(jnp.isfinite(score), axis=1)


def _chunk(
    state: MethodState,
    key: PRNGKeyArray,
    limit: Int[Array, ""],
    method: AbstractMethod,
    target: Target,
    length: int,
    keeps_positions: bool,
) -> ChunkResult:
    """Runs a chunk of steps. Steps from `limit` on are not run."""

    def advance(inner: PyTree, step: Int[Array, ""]) -> tuple[PyTree, Records]:
        return method.step(jax.random.fold_in(key, step), inner, target, step)

    first = state.step
    nothing = eqx.filter_eval_shape(lambda: advance(state.inner, first)[1])

    def idle(inner: PyTree, step: Int[Array, ""]) -> tuple[PyTree, Records]:
        return inner, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), nothing)

    def body(inner: PyTree, step: Int[Array, ""]) -> tuple[PyTree, tuple[Records, Array | None]]:
        inner, records = lax.cond(step < limit, advance, idle, inner, step)
        return inner, (records, method.positions(inner) if keeps_positions else None)

    inner, (records, trace) = lax.scan(body, state.inner, first + jnp.arange(length))
    after = MethodState(jnp.maximum(first, jnp.minimum(first + length, limit)), inner)
    return ChunkResult(after, records, jnp.all(jnp.isfinite(method.positions(inner))), trace)


def _chunks(state, key, limit, method, target, length, keeps_positions) -> ChunkResult:
    """`_chunk` for a batch of runs."""

    def run(state, key, limit):
        return _chunk(state, key, limit, method, target, length, keeps_positions)

    return jax.vmap(run)(state, key, limit)


def _chunk_of(i, state, key, limit, method, target, length, keeps_positions) -> ChunkResult:
    """`_chunk` for run i of a batch."""
    state, key, limit = jax.tree.map(lambda a: a[i], (state, key, limit))
    return _chunk(state, key, limit, method, target, length, keeps_positions)


_run_chunk, _run_together, _run_on_cores = jit(_chunk), jit(_chunks), on_cores(_chunk_of)


@one_shot
def _stack(parts: list) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
