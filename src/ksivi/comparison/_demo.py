"""The demonstration behind `ksivi demo`: KSIVI on the paper's three toys."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import optax

from .. import metrics, problems
from ..families import SemiImplicit
from ..kernels import IMQ, Gaussian
from ..objectives import KSIVI, Annealing
from ..results import Fit
from ..training import Callback, train

TOYS = {"banana": problems.banana, "multimodal": problems.multimodal, "x-shaped": problems.x_shaped}
STEPS = 15_000

_NUM_DRAWS = 100_000
_NUM_COMPARED = 1_000


@dataclasses.dataclass(frozen=True)
class Shown:
    """One toy, its fit, and what is worth seeing of it."""

    problem: problems.Toy
    fit: Fit
    draws: np.ndarray
    truth: np.ndarray
    distances: dict[str, float]


def fit_toy(seed: int, problem: problems.Toy, num_steps: int, callbacks: Sequence[Callback] = ()) -> Fit:
    """KSIVI with smaller batches and fewer steps than the paper's, and a cosine schedule to make up for it."""
    family_key, train_key = jax.random.split(jax.random.key(seed))
    objective = KSIVI(
        IMQ() if problem.name == "multimodal" else Gaussian(),
        num_samples=100,
        # Where mass lies apart, annealing keeps the start from settling on one part of it.
        annealing=None if problem.name == "banana" else Annealing(start=0.1, horizon=num_steps / 2),
    )
    family = SemiImplicit.mlp(family_key, dim=2, mixing_dim=3, log_var=-1.386 if problem.name == "banana" else 0.0)
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-3, num_steps), b2=0.99)
    fit = train(
        train_key,
        problem.target,
        family,
        objective,
        optimizer=optimizer,
        num_steps=num_steps,
        callbacks=callbacks,
        progress=False,
    )
    assert isinstance(fit, Fit)
    return fit


def compare(seed: int, problem: problems.Toy, fit: Fit) -> Shown:
    """Distances of the draws to exact ones, and of exact draws among themselves: the floor."""
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
    return Shown(problem, fit, np.asarray(draws), np.asarray(truth), distances)
