"""Distances between the draws of methods and the truth of a problem."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_choice, as_single_key
from ..executors import Executor, Local, Lost
from ..metrics import sliced_wasserstein
from ..problems import AbstractProblem
from ..results import Code, Cost, Posterior, Status
from ..training import Callback, Chunk, stop_requested
from ._table import METHODS, PRESETS, plan_for

_NUM_COMPARED = 1_000
_REDRAWS = 5
"""Distances are means over this many pairs of samples. One pair alone is noisy, most of all with
heavy tails."""

Blocks = Float[Array, "r n d"]


@dataclasses.dataclass(frozen=True)
class Truth:
    """Blocks of draws of the truth, and the floor: mean and sd of the sliced W₂ between such
    blocks."""

    blocks: Blocks
    floor: float
    floor_sd: float


@dataclasses.dataclass(frozen=True)
class MethodResult:
    """The result of one method: its status and cost, some draws (None if it could not run), and
    their distance."""

    name: str
    status: Status
    cost: Cost
    draws: Float[np.ndarray, "n d"] | None
    sliced_wasserstein: float


def know_truth(key: PRNGKeyArray, problem: AbstractProblem, redraws: int = _REDRAWS) -> Truth:
    """Draws of the truth, and the distances between such draws.

    No method can be expected to have a smaller one.
    """
    draw_key, metric_key = jax.random.split(as_single_key(key))
    blocks = problem.reference(draw_key, redraws * _NUM_COMPARED).reshape(
        redraws, _NUM_COMPARED, -1
    )
    floors = sliced_distances(metric_key, jnp.roll(blocks, 1, axis=0), blocks)
    return Truth(blocks, float(np.mean(floors)), float(np.std(floors, ddof=1)))


def redraw(
    key: PRNGKeyArray, sample: Callable[[PRNGKeyArray, int], Float[Array, "n d"]], redraws: int
) -> Blocks:
    """Blocks of draws from a sampler."""
    return jnp.stack([sample(k, _NUM_COMPARED) for k in jax.random.split(key, redraws)])


def sliced_distances(key: PRNGKeyArray, samples: Blocks, blocks: Blocks, p: int = 2) -> list[float]:
    """Sliced W_p for each pair of blocks; infinite where a sample is not finite."""
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
) -> Iterator[MethodResult]:
    """Runs methods on a problem, and yields the result of each when it ends. Stops after an
    interrupted method.

    **Arguments:**

    - `methods`: names from `METHODS`.
    - `preset`: "short", "demo", or "paper" for the paper's settings.
    - `callbacks`: a function from the name of a method to the callbacks of its run. The callbacks
        see the progress but no posteriors, because the run may be in another process. A callback
        can stop only a run in this process.
    - `executor`: where methods run. Default: in this process, one after another.

    ```python
    from ksivi.comparison import compare, know_truth

    problem = ksivi.problems.banana()
    truth = know_truth(jax.random.key(0), problem)
    for result in compare(jax.random.key(1), problem, truth, ["svgd"]):
        print(result.name, result.sliced_wasserstein, truth.floor)
    ```
    """
    as_choice(preset, "preset", PRESETS)
    listen = lambda name, chunk: stop_requested(callbacks(name), chunk)  # noqa: E731
    task = _MethodTask(key, problem, truth, preset)
    with closing((executor or Local()).run(task, methods, listen)) as results:
        for name, result in results:
            found = _could_not_run(name, result.reason) if isinstance(result, Lost) else result
            yield found
            if found.status.kind == "interrupted":
                return


@dataclasses.dataclass(frozen=True)
class _MethodTask:
    """The task of an executor: runs one method, and measures its distance to the truth."""

    key: PRNGKeyArray
    problem: AbstractProblem
    truth: Truth
    preset: str

    def __call__(self, name: str, report: Callable[[Chunk], Any]) -> Iterator[MethodResult]:
        # The key of a method depends on its name, so its result does not depend on the other
        # methods.
        run_key, draw_key, metric_key = jax.random.split(
            jax.random.fold_in(self.key, METHODS.index(name)), 3
        )
        watch = lambda chunk: report(dataclasses.replace(chunk, posteriors=_no_posteriors))  # noqa: E731
        try:
            fit = plan_for(name, self.problem, self.preset).fit(run_key, self.problem, [watch])
        except ValueError as error:
            yield _could_not_run(name, str(error))
            return
        samples = redraw(draw_key, fit.posterior.sample, len(self.truth.blocks))
        distance = float(np.mean(sliced_distances(metric_key, samples, self.truth.blocks)))
        yield MethodResult(name, fit.status, fit.cost, np.asarray(samples[0]), distance)


def _could_not_run(name: str, reason: str) -> MethodResult:
    doubt = Code.COULD_NOT_RUN.doubt(f"it could not run: {reason}")
    status = Status.of_doubts("not trusted", [doubt])
    return MethodResult(name, status, Cost(0.0, 0, 0), None, math.inf)


def _no_posteriors() -> list[Posterior]:
    raise RuntimeError(
        "callbacks of a comparison cannot read posteriors: the run may be in another process"
    )
