"""Distances of methods to the truth of a problem."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_single_key
from ..metrics import sliced_wasserstein
from ..posterior import Fit
from ..problems import AbstractProblem
from ..training import Callback
from .recipes import METHODS, recipe

_NUM_COMPARED = 1_000


@dataclasses.dataclass(frozen=True)
class Compared:
    """A method, its fit, some of its draws, and how far they are from the truth."""

    name: str
    fit: Fit
    draws: Float[np.ndarray, "n d"]
    sliced_wasserstein: float


def distance_floor(key: PRNGKeyArray, problem: AbstractProblem) -> tuple[Float[Array, "n d"], float]:
    """1,000 draws of the truth, and their sliced W₂ to 1,000 others: below it no method can be told from exact."""
    draw_key, metric_key = jax.random.split(as_single_key(key))
    truth = problem.reference(draw_key, 2 * _NUM_COMPARED)
    truth, others = truth[:_NUM_COMPARED], truth[_NUM_COMPARED:]
    return truth, sliced_wasserstein(metric_key, others, truth)


def compare(
    key: PRNGKeyArray,
    problem: AbstractProblem,
    truth: Float[Array, "n d"],
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
        fit = recipe(name, problem, preset).fit(run_key, problem, callbacks(name))
        draws = fit.posterior.sample(draw_key, _NUM_COMPARED)
        finite = bool(np.isfinite(draws).all())
        distance = sliced_wasserstein(metric_key, draws, truth) if finite else math.inf
        yield Compared(name, fit, np.asarray(draws), distance)
        if fit.status.kind == "interrupted":
            return
