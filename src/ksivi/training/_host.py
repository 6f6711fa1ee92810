"""The host's side of training: chunks, callbacks, records, trouble."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .._core.closures import Structural
from .._core.compile import one_shot
from ..results import Fit, Posterior, Status
from ..targets import feed_of, with_data
from ._autopsy import NotFinite, examine
from ._callbacks import Callback, Chunk, told_to_stop
from ._checkpoints import Checkpoints, digest
from ._feed import Feeder
from ._outcome import fit_of
from ._signals import Terminated
from ._snapshots import progress_of, restore, snapshot_of
from ._start import as_state, count_bad, require_finite_start, share, split_key, start
from ._step import (
    Advanced,
    Problem,
    TrainState,
    all_finite,
    bytes_drawn,
    chunk_shape,
    initial_state,
    run_at_once_briefly,
    run_many,
    run_one,
)
from ._trouble import Trouble, early_ratio, find_trouble


class _Begun(NamedTuple):
    """A chunk that the device is at or will be at next, and since when: a chunk begins when the one before is done."""

    at: float
    chunk: Advanced


def _runs_ahead() -> bool:
    """Whether the next chunk begins before the host has looked at the last: on an H200 that saves 4 of 64 µs a step."""
    return jax.default_backend() != "cpu"


class Run:
    """The host's side of training: chunks, records, trouble. Runs of a batch share their leading axis.

    What differs between them beyond their keys (targets, objectives, learning rates) is in `own`. A batch that is to
    run `briefly` is compiled quickly rather than well. A `forgiving` run leaves out steps that are not finite, such as
    where a rare draw lies so far out that the density overflows there, unless they are many. With `checkpoints` it goes
    on from the last of them, and leaves others.
    """

    def __init__(
        self,
        key,
        target,
        family,
        objective,
        optimizer,
        learning_rate,
        ema,
        resume,
        *,
        briefly=False,
        forgiving=False,
        checkpoints: Checkpoints | None = None,
    ):
        self.batched = key.ndim == 1
        self.briefly, self.run_many = briefly, run_at_once_briefly if briefly else run_many
        self.num_runs = len(key) if self.batched else 1
        self.started = time.perf_counter()
        init_key, inner_key, check_key, self.key = split_key(key, 4)
        params, frozen = start(family, init_key)
        shared, self.own = share({"target": target, "objective": objective, "learning_rate": learning_rate})
        decay = None if ema is None else jnp.asarray(ema, jnp.result_type(float))
        self.problem = Problem(
            **shared, frozen=frozen, decay=decay, optimizer=Structural(optimizer), forgiving=forgiving
        )
        self._require_dim(params)
        self.feeder = (
            None if feed_of(self.problem.target) is None else Feeder(self.key, self.problem.target, shared["objective"])
        )
        self.state = self._each(initial_state, inner_key, params)
        if resume is not None:
            self.state = as_state(resume, self.state, self.num_runs, self.batched)
        elif not forgiving:
            require_finite_start(self._each(count_bad, check_key, params))
        self.bytes_drawn = bytes_drawn(self.problem, self.pick(params, 0))
        self.anchor, self.anchor_problem = self.state, self.problem
        self.limits = np.full(self.num_runs, np.iinfo(np.int32).max)
        self.troubles: list[Trouble | None] = [None] * self.num_runs
        self.seen: dict[int, NotFinite] = {}
        self.memo: dict[str, Any] = {}  # what whoever leads the run has decided, for those who go on with it
        self.records: dict[str, list[np.ndarray]] = {"loss": [], "stein_ratio": []}
        self.first = self.step = int(np.max(np.asarray(self.state.step)))
        self.ending: Status | None = None
        self.checkpoints, self._mark = checkpoints, progress_of(self)
        if checkpoints is not None:
            parts = {"key": key, "family": (params, frozen), "target": target, "objective": objective}
            parts |= {"optimizer": self.problem.optimizer, "learning_rate": learning_rate, "ema": decay}
            parts |= {"resume": resume, "nonfinite": forgiving, **checkpoints.also}
            self.identity = {name: digest(part) for name, part in parts.items()}
            if (snapshot := checkpoints.latest(self.identity)) is not None:
                restore(self, snapshot)
                self._mark = progress_of(self)
        self.early = np.atleast_1d(np.asarray(self.state.early_ratio))

    def until(self, num_steps: int, chunk_size: int, callbacks: Sequence[Callback]) -> None:
        """Runs chunks up to `num_steps`, or until all runs are in trouble, a callback says so, or Ctrl-C."""
        has_begun = self.step > self.first
        if num_steps < self.step + (not has_begun):
            raise ValueError(f"num_steps must be more than the {self.step} steps already done, got {num_steps}")
        chunk_size = chunk_size if self.feeder is None else min(chunk_size, self.feeder.most_steps)
        shape = chunk_shape(self.bytes_drawn, num_steps - self.first, chunk_size)
        begun = None
        try:
            while self.step < num_steps and None in self.troubles and self.ending is None:
                begun = self._chunk(num_steps, shape, callbacks, begun)
        except (KeyboardInterrupt, Terminated) as error:
            self.ending = Status("interrupted", f"stopped by the user after {self.step:,} of {num_steps:,} steps")
            self.save()
            if isinstance(error, Terminated):
                raise
        self.ending = self.ending or Status("step limit", f"ran all {num_steps:,} steps")

    def go_on(self, learning_rate: float) -> None:
        """Ready for more steps, at another learning rate: nothing is compiled again."""
        rate = jnp.asarray(learning_rate, jnp.result_type(float))
        self.problem = dataclasses.replace(self.problem, learning_rate=rate)
        self.anchor_problem = self.problem if self.anchor is self.state else self.anchor_problem
        self.ending = None

    def save(self) -> None:
        """A checkpoint of the last whole chunk, where they are wanted."""
        if self.checkpoints is not None:
            self.checkpoints.write(snapshot_of(self, self._mark))

    def fits(self) -> list[Fit]:
        seconds = time.perf_counter() - self.started
        return [fit_of(self, i, seconds) for i in range(self.num_runs)]

    def posterior(self, i: int) -> Posterior:
        """Of run i: its parameters as they are, or their average."""
        params = self.state.params if self.state.average is None else self.state.average
        target = self.pick(self.own["target"], i) if "target" in self.own else self.problem.target
        return Posterior.of(self.problem.family(self.pick(params, i)), target)

    def pick(self, tree: PyTree, i: int) -> PyTree:
        """What belongs to run i."""
        return jax.tree.map(lambda a: a[i] if eqx.is_array(a) else a, tree) if self.batched else tree

    def _chunk(
        self, num_steps: int, shape: tuple[int, int], callbacks: Sequence[Callback], begun: _Begun | None
    ) -> _Begun | None:
        """One chunk, which may have begun before; and the next, if it begins while the host looks at this one."""
        limits, count = np.minimum(self.limits, num_steps), min(shape[0] * shape[1], num_steps - self.step)
        begun = begun or self._begin(self.state, limits, shape)
        may_begin = _runs_ahead() and self.feeder is None and self.step + count < num_steps
        following = self._begin(begun.chunk.state, limits, shape) if may_begin else None
        records = {name: np.atleast_2d(np.asarray(row))[:, :count] for name, row in begun.chunk.records.items()}
        arrived = time.perf_counter()
        found = self._find_trouble(records, np.atleast_1d(np.asarray(begun.chunk.finite)))
        self._take(self._retreat(found, count, shape) if found else begun.chunk.state, records, count)
        if told_to_stop(callbacks, self._seen_by_callbacks(num_steps, records["loss"], arrived - begun.at)):
            self.ending = Status("interrupted", f"stopped by a callback after {self.step:,} of {num_steps:,} steps")
        return None if found or following is None else following._replace(at=arrived)

    def _begin(self, state: TrainState, limits: np.ndarray, shape: tuple[int, int]) -> _Begun:
        return _Begun(time.perf_counter(), self._advance(state, limits, shape))

    def _take(self, state: TrainState, records: dict[str, np.ndarray], count: int) -> None:
        """The run after a chunk, and a checkpoint of it where one is due.

        The mark comes after all that it is of: an interrupt on the way finds the chunk before, whole.
        """
        ratio = jnp.asarray(self.early if self.batched else self.early[0], state.early_ratio.dtype)
        state = dataclasses.replace(state, early_ratio=ratio)
        for name, values in records.items():
            self.records.setdefault(name, []).append(values)
        self.anchor, self.anchor_problem, self.state, self.step = self.state, self.problem, state, self.step + count
        before, self._mark = self._mark.step, progress_of(self)
        if self.checkpoints is not None and self.checkpoints.is_due(before, self.step):
            self.save()

    def _seen_by_callbacks(self, num_steps: int, losses: np.ndarray, seconds: float) -> Chunk:
        alive = [i for i, trouble in enumerate(self.troubles) if trouble is None]
        loss = float(np.nanmean(losses[alive])) if alive else float("nan")
        speed, since_start = losses.shape[1] / seconds, time.perf_counter() - self.started
        return Chunk(self.step, num_steps, loss, since_start, speed, self._posteriors)

    def _advance(
        self, state: TrainState, limits: np.ndarray, shape: tuple[int, int], problem: Problem | None = None
    ) -> Advanced:
        limits, problem = limits.astype(np.int32), self.problem if problem is None else problem
        if self.feeder is not None:
            rows = self.feeder.rows(int(np.max(np.asarray(state.step))), shape[0] * shape[1])
            problem = dataclasses.replace(problem, target=with_data(problem.target, lambda _: rows))
        if self.batched:
            return self.run_many(state, self.key, jnp.asarray(limits), problem, self.own, shape)
        return run_one(state, self.key, jnp.asarray(limits[0]), problem, shape)

    def _find_trouble(self, records: dict[str, np.ndarray], finite: np.ndarray) -> dict[int, Trouble]:
        """Runs that went wrong in this chunk."""
        self.early = np.where(np.isnan(self.early), early_ratio(records["stein_ratio"]), self.early)
        found = {}
        for i in range(self.num_runs):
            if self.troubles[i] is None:
                loss, ratio = records["loss"][i], records["stein_ratio"][i]
                found[i] = find_trouble(loss, ratio, self.early[i], bool(finite[i]), self.step, self.problem.forgiving)
        return {i: trouble for i, trouble in found.items() if trouble is not None}

    def _retreat(self, found: dict[int, Trouble], count: int, shape: tuple[int, int]) -> TrainState:
        """The state after the chunk, but with the last good parameters of the runs that went wrong."""
        for i, trouble in found.items():
            self.troubles[i], self.limits[i] = trouble, max(self.first, trouble.limit)
        # Steps are repeatable: running again from a chunk ago, up to the fault, gives the parameters before it.
        limits = np.minimum(self.limits, self.step + count)
        before, until = self.anchor, np.minimum(limits, self.step)
        while np.any(np.asarray(before.step) < until):  # once, unless the chunks before a checkpoint were shorter
            before = self._advance(before, until, shape, self.anchor_problem).state
        self._examine({i: t.not_finite for i, t in found.items() if t.not_finite is not None}, before, shape)
        return self._advance(before, limits, shape).state

    def _examine(self, found: dict[int, int], before: TrainState, shape: tuple[int, int]) -> None:
        """Looks at the states in which the steps began that could not be taken."""
        if not found or self.briefly or self.feeder is not None:
            return
        steps = np.full(self.num_runs, np.iinfo(np.int32).max)
        steps[list(found)] = list(found.values())
        begun, earlier = (self._advance(before, limits, shape).state for limits in (steps, steps - 1))
        for i in found:
            # Parameters that are not finite say that the gradient of the step before was not.
            state = self.pick(begun, i)
            state = state if bool(all_finite(state.params)) else self.pick(earlier, i)
            key, own = self.key[i] if self.batched else self.key, self.pick(self.own, i)
            with contextlib.suppress(RuntimeError, MemoryError):  # a look that fails must not cost the run
                self.seen[i] = examine(key, self.problem.with_own(own), state)

    def _posteriors(self) -> list[Posterior]:
        return [self.posterior(i) for i in range(self.num_runs)]

    def _each(self, function: Callable, key: PRNGKeyArray, params: PyTree) -> Any:
        """function(key, problem, params) of every run."""
        if not self.batched:
            return function(key, self.problem, params)
        return _of_every_run(function, key, params, self.problem, self.own)

    def _require_dim(self, params: PyTree) -> None:
        dim = self.problem.family(self.pick(params, 0)).dim
        if dim != self.problem.target.dim:
            raise ValueError(f"family must have the target's dim {self.problem.target.dim}, got dim {dim}")


@one_shot
def _of_every_run(function: Callable, key: PRNGKeyArray, params: PyTree, problem: Problem, own: dict[str, Any]) -> Any:
    run = lambda key, params, own: function(key, problem.with_own(own), params)  # noqa: E731
    return eqx.filter_vmap(run)(key, params, own)
