"""The second half of `ksivi demo`: `fit` beside NUTS and mean-field ADVI, on three posteriors whose
exact draws are known."""

import dataclasses
import time
from collections.abc import Callable

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from .. import problems
from ..auto import fit
from ..families import SemiImplicit
from ..methods import NUTS, run
from ..objectives import SIVI
from ..results import ChainDiagnostics, Fit, FitDiagnostics
from ..targets import Target
from ..training import train
from ._compare import redraw, sliced_distances

HARD_PROBLEMS: dict[str, Callable[[], problems.AbstractProblem]] = {
    "two-lines": problems.two_lines,
    "eight-schools": problems.eight_schools,
    "eight-gaussians": problems.eight_gaussians,
}
SETTINGS = {
    "ksivi.fit": "no settings",
    "NUTS": "4 chains from N(0, I), 1,000 draws each after 1,000 of warm-up",
    "ADVI": "a diagonal Gaussian, 5,000 steps of 100 draws",
}
_BLOCKS, _SIZE, _SHOWN = 5, 1_000, 100_000
_ADVI_STEPS, _ADVI_DRAWS, _ADVI_RATE = 5_000, 100, 0.05
_MOST_FLOORS = 2.0
"""Draws are right if they are at most this many times as far from exact draws as exact draws are."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a method returned for a posterior.

    **Attributes:**

    - `distance`: sliced W₂ between 1,000 draws and as many exact draws, in units of the posterior's
        standard deviations; 1 is the distance between exact draws and exact draws.
    - `says`: what the method says about its own draws. ADVI has no check of them.
    - `warns`: whether that is a warning.
    """

    method: str
    draws: np.ndarray
    distance: float
    says: str
    warns: bool
    seconds: float
    kind: str

    @property
    def right(self) -> bool:
        return self.distance <= _MOST_FLOORS


@dataclasses.dataclass(frozen=True)
class Confrontation:
    """A posterior, exact draws of it, and the answer of each method."""

    name: str
    truth: np.ndarray
    answers: list[Answer]


def confront(name: str, seed: int) -> Confrontation:
    """Runs `fit`, NUTS and ADVI on one of `HARD_PROBLEMS`, and measures their draws.

    It stops after a method that was interrupted.
    """
    problem = HARD_PROBLEMS[name]()
    run_key, draw_key, truth_key = jax.random.split(jax.random.key(seed), 3)
    truth = np.asarray(problem.reference(truth_key, _SHOWN), np.float64)
    answers: list[Answer] = []
    for method, find in _METHODS.items():
        began = time.perf_counter()
        found = find(run_key, problem.target)
        seconds = time.perf_counter() - began
        answers.append(_measured(draw_key, method, found, truth, seconds))
        if found.status.kind == "interrupted":
            break
    return Confrontation(name, truth, answers)


def _fit(key: PRNGKeyArray, target: Target) -> Fit:
    found = fit(key, target, progress=False)
    assert isinstance(found, Fit)
    return found


def _nuts(key: PRNGKeyArray, target: Target) -> Fit:
    found = run(key, target, NUTS(), progress=False)
    assert isinstance(found, Fit)
    return found


def _advi(key: PRNGKeyArray, target: Target) -> Fit:
    """Without auxiliary z, the bound of SIVI is the ELBO. The rate falls to 0, so that the last
    steps are not noise."""
    optimizer = optax.adam(optax.cosine_decay_schedule(_ADVI_RATE, _ADVI_STEPS))
    gaussian, elbo = SemiImplicit.location_scale(target.dim), SIVI(_ADVI_DRAWS, num_mixing=0)
    options = {"num_steps": _ADVI_STEPS, "optimizer": optimizer, "progress": False}
    found = train(key, target, gaussian, elbo, **options)
    assert isinstance(found, Fit)
    return found


_METHODS = {"ksivi.fit": _fit, "NUTS": _nuts, "ADVI": _advi}


def _measured(
    key: PRNGKeyArray, method: str, found: Fit, truth: np.ndarray, seconds: float
) -> Answer:
    return Answer(
        method=method,
        draws=np.asarray(found.posterior.sample(key, 4 * _SIZE)),
        distance=_distance(key, found, truth),
        says=_verdict(found),
        warns=method != "ADVI" and not found.trusted,
        seconds=seconds,
        kind=found.status.kind,
    )


def _verdict(found: Fit) -> str:
    """What a user of the method is told about its draws, in few words."""
    told = found.diagnostics
    if isinstance(told, ChainDiagnostics) and told.r_hat is not None:
        return f"R-hat {told.r_hat:.2f}, {told.divergences:,} divergent transitions"
    if isinstance(told, FitDiagnostics):
        return "trusted" if found.trusted else str(found.status)
    return "no check of its draws"


def _distance(key: PRNGKeyArray, found: Fit, truth: np.ndarray) -> float:
    """Sliced W₂ to exact draws in units of its floor, over five pairs of samples."""
    scale = truth.std(axis=0)
    blocks = (truth[: 2 * _BLOCKS * _SIZE] / scale).reshape(2, _BLOCKS, _SIZE, -1)
    draws = redraw(key, found.posterior.sample, _BLOCKS) / scale
    floor = np.mean(sliced_distances(key, blocks[1], blocks[0]))
    return float(np.mean(sliced_distances(key, draws, blocks[0])) / floor)
