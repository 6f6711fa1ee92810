"""Distances of methods to the truth of a problem."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_single_key
from ..executors import Executor, Local, Lost
from ..metrics import sliced_wasserstein
from ..problems import AbstractProblem
from ..results import Cost, Posterior, Status
from ..training import Callback, Chunk, told_to_stop
from ._recipes import METHODS, recipe

_NUM_COMPARED = 1_000
_REDRAWS = 5
"""Distances are means over so many pairs of samples: one pair alone is noisy, most of all with heavy tails."""

Blocks = Float[Array, "r n d"]


@dataclasses.dataclass(frozen=True)
class Truth:
    """Blocks of draws of the truth, and the sliced W₂ between such blocks: its mean and sd."""

    blocks: Blocks
    floor: float
    floor_sd: float


@dataclasses.dataclass(frozen=True)
class Compared:
    """A method, how it ended and what it cost, some of its draws (None if it could not run), and their distance."""

    name: str
    status: Status
    cost: Cost
    draws: Float[np.ndarray, "n d"] | None
    sliced_wasserstein: float


def know_truth(key: PRNGKeyArray, problem: AbstractProblem, redraws: int = _REDRAWS) -> Truth:
    """Draws of the truth, and how far such draws are from one another: no method can be expected below that."""
    draw_key, metric_key = jax.random.split(as_single_key(key))
    blocks = problem.reference(draw_key, redraws * _NUM_COMPARED).reshape(redraws, _NUM_COMPARED, -1)
    floors = sliced_distances(metric_key, jnp.roll(blocks, 1, axis=0), blocks)
    return Truth(blocks, float(np.mean(floors)), float(np.std(floors, ddof=1)))


def redraw(key: PRNGKeyArray, sample: Callable[[PRNGKeyArray, int], Float[Array, "n d"]], redraws: int) -> Blocks:
    """Blocks of draws of a sampler."""
    return jnp.stack([sample(k, _NUM_COMPARED) for k in jax.random.split(key, redraws)])


def sliced_distances(key: PRNGKeyArray, samples: Blocks, blocks: Blocks, p: int = 2) -> list[float]:
    """Sliced W_p, block by block; infinite where a sample is not finite."""
    keys = jax.random.split(key, len(blocks))
    finite = jnp.isfinite(samples).all(axis=(1, 2))
    return [
        sliced_wasserstein(k, a, b, p=p) if ok else math.inf
        for k, a, b, ok in zip(keys, samples, blocks, finite, strict=True)
    ]


def compare(
    key: PRNGKeyArray,
    problem: AbstractProblem,
    truth: Truth,
    methods: Sequence[str] = METHODS,
    *,
    preset: str = "short",
    callbacks: Callable[[str], Sequence[Callback]] = lambda name: (),
    executor: Executor | None = None,
) -> Iterator[Compared]:
    """Runs methods, yields each when it has ended, and stops after one that was interrupted.

    **Arguments:**

    - `methods`: names out of `METHODS`.
    - `preset`: "short", or "paper" for the paper's settings.
    - `callbacks`: name ↦ callbacks of that method's run. They see how far it is, and no posteriors, which may be
        elsewhere; their answers are heard where the run is in this process.
    - `executor`: where methods run; in this process, one after another, unless given.
    """
    heard = lambda name, chunk: told_to_stop(callbacks(name), chunk)  # noqa: E731
    task = _Match(key, problem, truth, preset)
    with closing((executor or Local()).run(task, methods, heard)) as results:
        for name, result in results:
            found = _could_not_run(name, result.reason) if isinstance(result, Lost) else result
            yield found
            if found.status.kind == "interrupted":
                return


@dataclasses.dataclass(frozen=True)
class _Match:
    """A method against the truth of a problem, as a task."""

    key: PRNGKeyArray
    problem: AbstractProblem
    truth: Truth
    preset: str

    def __call__(self, name: str, tell: Callable[[Chunk], Any]) -> Iterator[Compared]:
        # A method's key depends on its name, so that it does the same in any company.
        run_key, draw_key, metric_key = jax.random.split(jax.random.fold_in(self.key, METHODS.index(name)), 3)
        watch = lambda chunk: tell(dataclasses.replace(chunk, posteriors=_elsewhere))  # noqa: E731
        try:
            fit = recipe(name, self.problem, self.preset).fit(run_key, self.problem, [watch])
        except ValueError as error:
            yield _could_not_run(name, str(error))
            return
        samples = redraw(draw_key, fit.posterior.sample, len(self.truth.blocks))
        distance = float(np.mean(sliced_distances(metric_key, samples, self.truth.blocks)))
        yield Compared(name, fit.status, fit.cost, np.asarray(samples[0]), distance)


def _could_not_run(name: str, reason: str) -> Compared:
    return Compared(name, Status("not trusted", f"it could not run: {reason}"), Cost(0.0, 0, 0), None, math.inf)


def _elsewhere() -> list[Posterior]:
    raise RuntimeError("callbacks of a comparison see no posteriors: their run may be in another process")
