"""Cells that train semi-implicit families, or run particles or chains."""

import dataclasses
import itertools
import math
import time
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ksivi.comparison import RobustPlan, TrainingPlan
from ksivi.families import Empirical
from ksivi.methods import KSDD, MALA, MIED, SGLD, run
from ksivi.results import Fit, Posterior
from ksivi.training import Chunk

from . import measures
from .cells import Cell, ProblemSpec, TrainedRuns, device, finished

_LONGEST_CHUNK = 1_000
_POINTS = 200
"""Points of a loss curve."""


@dataclasses.dataclass(frozen=True)
class Training(Cell):
    """Runs of one plan with several seeds and one or more learning rates, all in one batch.

    **Attributes:**

    - `seeds`: the number of seeds, 0, …, seeds − 1, for each learning rate.
    - `learning_rates`: replace the learning rate of the plan.
    - `snapshots`: steps at which posteriors are stored and measured, in addition to the last step.
    - `measured`: names from `measures.MEASURES`, measured at every snapshot and at the end.
    - `at_end`: more such names, measured at the end only.
    - `shown`: names from `measures.SHOWN`, for the figures; from the first run.
    """

    experiment: str
    name: str
    problem: ProblemSpec
    plan: TrainingPlan | RobustPlan
    seeds: int
    learning_rates: tuple[float, ...] = ()
    snapshots: tuple[int, ...] = ()
    measured: tuple[str, ...] = ("sliced-w2",)
    at_end: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def runs(self) -> list[tuple[int, float | None]]:
        """The seed and the learning rate of every run. None: that of the plan for its dimension."""
        rates = self.learning_rates or (self.plan.learning_rate,)
        return [(seed, rate) for rate, seed in itertools.product(rates, range(self.seeds))]

    def train(self) -> TrainedRuns:
        began = time.perf_counter()
        seeds, rates = map(list, zip(*self.runs(), strict=True))
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        kept = _Snapshots(self.snapshots)
        target = self.problem.make().target
        options: dict[str, Any] = {"callbacks": [kept], "chunk_size": self._chunk()}
        if None not in rates:
            options["learning_rate"] = jnp.asarray(rates)
        fits = finished(self.plan.train(keys, target, **options))
        if kept.steps != sorted(self.snapshots) and not all(
            fit.status.kind == "diverged" for fit in fits
        ):
            raise RuntimeError(
                f"expected snapshots at steps {self.snapshots}, got snapshots at {kept.steps}"
            )
        posteriors = (*kept.posteriors, tuple(fit.posterior for fit in fits))
        steps = (*kept.steps, self.plan.num_steps)
        return TrainedRuns(
            posteriors,
            steps,
            tuple(str(fit.status) for fit in fits),
            _thinned_losses(fits, self.plan.num_steps),
            time.perf_counter() - began,
            kept.seconds_a_step(),
            device(),
        )

    def _chunk(self) -> int:
        """Steps per chunk, chosen so that every snapshot is at the end of a chunk."""
        if not self.snapshots:
            return _LONGEST_CHUNK
        common = math.gcd(self.plan.num_steps, *self.snapshots)
        return max(size for size in range(1, min(common, _LONGEST_CHUNK) + 1) if common % size == 0)

    def measure(self, runs: TrainedRuns) -> dict[str, Any]:
        rows = []
        for step, posteriors in zip(runs.steps, runs.posteriors, strict=True):
            for (seed, rate), posterior in zip(self.runs(), posteriors, strict=True):
                names = self.measured + (self.at_end if step == runs.steps[-1] else ())
                numbers = measures.measure(names, self.problem, posterior)
                rows.append({"seed": seed, "learning_rate": rate, "step": step, **numbers})
        first = [posteriors[0] for posteriors in runs.posteriors]
        return {
            "rows": rows,
            "floor": measures.floors(self.measured + self.at_end, self.problem),
            "losses": measures.rounded(runs.losses),
            "shown": {name: measures.SHOWN[name](self.problem, first) for name in self.shown},
        }


@dataclasses.dataclass(frozen=True)
class Sampling(Cell):
    """Particles or chains, given by name and options; one run per seed."""

    experiment: str
    name: str
    problem: ProblemSpec
    method: str
    options: tuple[tuple[str, Any], ...]
    num_points: int
    seeds: int
    measured: tuple[str, ...] = ("sliced-w2",)
    shown: tuple[str, ...] = ()

    def train(self) -> TrainedRuns:
        began, problem = time.perf_counter(), self.problem.make()
        fits = finished([self._run(problem, seed) for seed in range(self.seeds)])
        posteriors = tuple(_last(fit.posterior, self.num_points) for fit in fits)
        seconds = fits[-1].cost.seconds / max(1, fits[-1].cost.steps)
        status = tuple(str(fit.status) for fit in fits)
        steps, wall = max(fit.cost.steps for fit in fits), time.perf_counter() - began
        return TrainedRuns(
            (posteriors,), (steps,), status, jnp.zeros((0, 0)), wall, seconds, device()
        )

    def measure(self, runs: TrainedRuns) -> dict[str, Any]:
        rows = [
            {"seed": seed, **measures.measure(self.measured, self.problem, posterior)}
            for seed, posterior in enumerate(runs.posteriors[0])
        ]
        shown = {
            name: measures.SHOWN[name](self.problem, [runs.posteriors[0][0]]) for name in self.shown
        }
        return {"rows": rows, "floor": measures.floors(self.measured, self.problem), "shown": shown}

    def _run(self, problem, seed: int) -> Fit:
        start_key, run_key = jax.random.split(jax.random.key(seed))
        start = problem.start(start_key, self.num_points)
        method = _METHODS[self.method](self.num_points, start=start, **dict(self.options))
        return cast(Fit, run(run_key, problem.target, method, chunk_size=1_000, progress=False))


_METHODS: dict[str, Any] = {
    "mied": lambda n, rate, **options: MIED(n, optimizer=optax.adam(rate), **options),
    "ksdd": lambda n, rate, **options: KSDD(n, optimizer=optax.adam(rate), **options),
    "sgld": lambda n, **options: SGLD(num_chains=n, **options),
    "mala": lambda n, **options: MALA(num_chains=n, **options),
}


def _last(posterior: Posterior, n: int) -> Posterior:
    """A posterior of the last n stored draws: one draw per chain."""
    assert isinstance(posterior.family, Empirical)
    return dataclasses.replace(posterior, family=Empirical(posterior.family.points[-n:]))


class _Snapshots:
    """A callback that stores posteriors at the snapshots, and the time of every chunk."""

    def __init__(self, snapshots: tuple[int, ...]):
        self.at = set(snapshots)
        self.steps: list[int] = []
        self.posteriors: list[tuple[Posterior, ...]] = []
        self.times: list[tuple[int, float]] = []

    def __call__(self, chunk: Chunk) -> None:
        self.times.append((chunk.step, chunk.seconds))
        if chunk.step in self.at:
            self.steps.append(chunk.step)
            self.posteriors.append(tuple(chunk.posteriors()))

    def seconds_a_step(self) -> float:
        (first, began), (last, ended) = self.times[0], self.times[-1]
        return (ended - began) / (last - first) if last > first else ended / last


def _thinned_losses(fits: list[Fit], num_steps: int):
    """Mean losses over `_POINTS` intervals of the steps, with NaN after the end of a run that ended
    early."""
    losses = np.full((len(fits), num_steps), np.nan)
    for row, fit in zip(losses, fits, strict=True):
        values = fit.history["loss"][-num_steps:]
        row[: len(values)] = values
    intervals = np.array_split(losses, min(_POINTS, num_steps), axis=1)
    return jnp.asarray(np.stack([np.mean(part, axis=1) for part in intervals], axis=1), jnp.float32)
