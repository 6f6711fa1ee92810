"""Distances of methods to the truth of a problem."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_single_key
from ..metrics import sliced_wasserstein
from ..posterior import Cost, Status
from ..problems import AbstractProblem
from ..training import Callback
from .recipes import METHODS, recipe

_NUM_COMPARED = 1_000
_REDRAWS = 5
"""Distances are means over so many pairs of samples: one pair alone is noisy, most of all with heavy tails."""

Blocks = Float[Array, "r n d"]


@dataclasses.dataclass(frozen=True)
class Truth:
    """Blocks of draws of the truth, and the sliced W₂ from each to another such block: its mean and sd."""

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


def know_truth(key: PRNGKeyArray, problem: AbstractProblem) -> Truth:
    """Draws of the truth, and how far such draws are from one another: no method can be expected below that."""
    draw_key, metric_key = jax.random.split(as_single_key(key))
    draws = problem.reference(draw_key, 2 * _REDRAWS * _NUM_COMPARED)
    blocks, others = draws.reshape(2, _REDRAWS, _NUM_COMPARED, -1)
    distances = _distances(metric_key, others, blocks)
    return Truth(blocks, float(np.mean(distances)), float(np.std(distances, ddof=1)))


def compare(
    key: PRNGKeyArray,
    problem: AbstractProblem,
    truth: Truth,
    methods: Sequence[str] = METHODS,
    *,
    preset: str = "short",
    callbacks: Callable[[str], Sequence[Callback]] = lambda name: (),
) -> Iterator[Compared]:
    """Runs methods one after another, and stops after one that was interrupted.

    **Arguments:**

    - `methods`: names out of `METHODS`.
    - `preset`: "short", or "paper" for the paper's settings.
    - `callbacks`: name ↦ callbacks of that method's run.
    """
    for name in methods:
        # A method's key depends on its name, so that it does the same in any company.
        run_key, draw_key, metric_key = jax.random.split(jax.random.fold_in(key, METHODS.index(name)), 3)
        try:
            fit = recipe(name, problem, preset).fit(run_key, problem, callbacks(name))
        except ValueError as error:
            yield Compared(name, Status("not trusted", f"it could not run: {error}"), Cost(0.0, 0, 0), None, math.inf)
            continue
        samples = jnp.stack([fit.posterior.sample(k, _NUM_COMPARED) for k in jax.random.split(draw_key, _REDRAWS)])
        finite = bool(jnp.isfinite(samples).all())
        distance = float(np.mean(_distances(metric_key, samples, truth.blocks))) if finite else math.inf
        yield Compared(name, fit.status, fit.cost, np.asarray(samples[0]), distance)
        if fit.status.kind == "interrupted":
            return


def _distances(key: PRNGKeyArray, samples: Blocks, blocks: Blocks) -> list[float]:
    keys = jax.random.split(key, len(blocks))
    return [sliced_wasserstein(k, a, b) for k, a, b in zip(keys, samples, blocks, strict=True)]
