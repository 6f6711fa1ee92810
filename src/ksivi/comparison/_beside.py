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
from ..metrics import sliced_wasserstein
from ..objectives import SIVI
from ..results import ChainDiagnostics, Fit, FitDiagnostics
from ..targets import Target
from ..training import train

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
_SIZE, _SHOWN, _PROJECTIONS = 1_000, 100_000, 100
_BLOCKS, _FLOORS = 5, 20
"""How many pairs of samples a distance and its floor are means over."""

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
    measure = _Distance(truth_key, truth)
    answers: list[Answer] = []
    for method, find in _METHODS.items():
        began = time.perf_counter()
        found = find(run_key, problem.target)
        seconds = time.perf_counter() - began
        answers.append(_measured(draw_key, method, found, measure, seconds))
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
    key: PRNGKeyArray, method: str, found: Fit, measure: "_Distance", seconds: float
) -> Answer:
    draws = np.asarray(found.posterior.sample(key, _BLOCKS * _SIZE), np.float64)
    return Answer(
        method=method,
        draws=draws,
        distance=measure(draws),
        says=_verdict(found),
        warns=method != "ADVI" and not found.trusted,
        seconds=seconds,
        kind=found.status.kind,
    )


def _verdict(found: Fit) -> str:
    """What a user of the method is told about its draws, in few words."""
    told = found.diagnostics
    if isinstance(told, ChainDiagnostics) and told.r_hat is not None:
        return f"R-hat {told.r_hat:.2f}, {told.divergences:,} divergences"
    if isinstance(told, FitDiagnostics):
        return "trusted" if found.trusted else str(found.status)
    return "no check of its draws"


class _Distance:
    """Sliced W₂ to exact draws, in units of its floor and of the posterior's standard deviations."""

    def __init__(self, key: PRNGKeyArray, truth: np.ndarray):
        self._key, self._scale = key, truth.std(axis=0)
        self._truth = self._blocks(truth[: 2 * _FLOORS * _SIZE])
        self._floor = self._mean(self._truth[_FLOORS:], self._truth[:_FLOORS])

    def __call__(self, draws: np.ndarray) -> float:
        return self._mean(self._blocks(draws), self._truth[:_BLOCKS]) / self._floor

    def _blocks(self, draws: np.ndarray) -> np.ndarray:
        return (draws / self._scale).reshape(-1, _SIZE, draws.shape[1])

    def _mean(self, some: np.ndarray, others: np.ndarray) -> float:
        pairs = zip(some, others, strict=True)
        found = [
            sliced_wasserstein(self._key, *pair, num_projections=_PROJECTIONS) for pair in pairs
        ]
        return float(np.mean(found))
