"""Cells for the theory: variance and cost of the gradient estimators as functions of N."""

import dataclasses
import json
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ksivi.comparison import TrainingPlan
from ksivi.diagnostics import gradient_variance
from ksivi.families import SemiImplicit
from ksivi.kernels import AbstractKernel, Gaussian
from ksivi.objectives import KSIVI
from ksivi.targets import Target

from .cells import Cell, ProblemSpec, TrainedRuns, device
from .measures import rounded

_FOR_BANDWIDTH = 1_000


@dataclasses.dataclass(frozen=True)
class Estimators(Cell):
    """The variance of KSIVI's gradient at the start of training, for several N (Theorem 4.7: Σ₀/N).

    **Attributes:**

    - `bandwidth`: "fixed" at the median of the first draws, which makes the estimators unbiased, or
        "median".
    - `sizes`: the values of N.
    - `repeats`: the number of gradients for each N.
    """

    experiment: str
    name: str
    problem: ProblemSpec
    plan: TrainingPlan
    bandwidth: str
    sizes: tuple[int, ...]
    repeats: int

    def train(self) -> TrainedRuns:
        began = time.perf_counter()
        target = self.problem.make().target
        family = self.plan.family(jax.random.key(0), target.dim)
        rows = [self._row(n, target, family) for n in self.sizes]
        seconds = time.perf_counter() - began
        return TrainedRuns(
            (), (), (), jnp.zeros((0, 0)), seconds, 0.0, device(), json.dumps({"rows": rows})
        )

    def measure(self, runs: TrainedRuns) -> dict[str, Any]:
        return json.loads(runs.notes)

    def _row(self, n: int, target: Target, family: SemiImplicit) -> dict[str, Any]:
        objective = KSIVI(
            self._kernel(family), "vanilla" if self.plan.method == "ksivi" else "u-statistic", n
        )
        variance, error = gradient_variance(
            jax.random.key(1), objective, target, family, self.repeats
        )
        numbers = {
            "variance": variance,
            "error": error,
            "seconds": _seconds(objective, target, family),
        }
        return {"n": n, **{name: rounded(value) for name, value in numbers.items()}}

    def _kernel(self, family: SemiImplicit) -> AbstractKernel:
        x = family.sample(jax.random.key(2), _FOR_BANDWIDTH)
        return Gaussian().resolve(x, x, 1) if self.bandwidth == "fixed" else Gaussian()


def _seconds(objective: KSIVI, target: Target, family: SemiImplicit, repeats: int = 20) -> float:
    """The time of one compiled gradient: the median of several."""
    draws = objective.draw(jax.random.key(3), target, family)

    @eqx.filter_jit
    def gradient(family: SemiImplicit, draws: Any, target: Target) -> Any:
        return eqx.filter_grad(
            lambda f: objective.loss(f, None, draws, target, jnp.zeros((), jnp.int32))[0]
        )(family)

    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(gradient(family, draws, target))
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:]))
