"""The demonstration behind `ksivi demo`: KSIVI on the paper's three toys, with the preset
"demo"."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from .. import metrics, problems
from ..results import Fit
from ..training import Callback, train
from ._table import training_plan

DEMO_PROBLEMS = ("banana", "multimodal", "x-shaped")

_NUM_DRAWS = 100_000
_NUM_COMPARED = 1_000


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """A toy, its fit, draws of the fit and exact draws, and the distances between them."""

    problem: problems.AbstractProblem
    fit: Fit
    draws: np.ndarray
    truth: np.ndarray
    distances: dict[str, float]


def demonstrate(
    name: str, seed: int, num_steps: int | None = None, callbacks: Sequence[Callback] = ()
) -> Demonstration:
    """Trains KSIVI on one of `DEMO_PROBLEMS`, and measures its draws."""
    problem = problems.BY_NAME[name]()
    fit = _fit(problem, seed, num_steps, callbacks)
    keys = jax.random.split(jax.random.key(seed + 1), 4)
    draws = fit.posterior.sample(keys[0], _NUM_DRAWS)
    truth, other = problem.reference(keys[1], _NUM_DRAWS), problem.reference(keys[2], _NUM_COMPARED)
    q, p = draws[:_NUM_COMPARED], truth[:_NUM_COMPARED]
    distances = {
        "kl": metrics.kl_knn(draws, truth),
        "mmd": metrics.mmd(q, p),
        "mmd_floor": metrics.mmd(other, p),
        "sliced_wasserstein": metrics.sliced_wasserstein(keys[3], q, p),
        "sliced_wasserstein_floor": metrics.sliced_wasserstein(keys[3], other, p),
    }
    return Demonstration(problem, fit, np.asarray(draws), np.asarray(truth), distances)


def _fit(
    problem: problems.AbstractProblem,
    seed: int,
    num_steps: int | None,
    callbacks: Sequence[Callback],
) -> Fit:
    plan = training_plan("ksivi", problem.name, problem.target.dim, "demo")
    plan = plan if num_steps is None else plan.replace(num_steps=num_steps)
    family_key, train_key = jax.random.split(jax.random.key(seed))
    family, optimizer = (
        plan.family(family_key, problem.target.dim),
        plan.optimizer(plan.learning_rate),
    )
    options = {
        "optimizer": optimizer,
        "num_steps": plan.num_steps,
        "callbacks": callbacks,
        "progress": False,
    }
    fit = train(train_key, problem.target, family, plan.objective(), **options)
    assert isinstance(fit, Fit)
    return fit
