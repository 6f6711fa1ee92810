"""Cells for Bayesian neural networks. Settings are chosen on development rows, and ten runs are
scored on test rows."""

import abc
import dataclasses
import functools
import itertools
import json
import time
import zlib
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ksivi.comparison import TrainingPlan
from ksivi.families import SemiImplicit
from ksivi.methods import SGLD, SVGD, AbstractMethod, run
from ksivi.objectives import AbstractObjective, MeanPrediction
from ksivi.problems import BNN, Hyper, bnn
from ksivi.results import Fit, Posterior
from ksivi.training import train

from .cells import Cell, TrainedRuns, device, finished
from .measures import measuring_key, rounded

_NUM_DRAWS = 100
_PRETRAINING = 1
_CHOOSING_SEED, _CHOOSING_RUNS = 100, 3
_HYPER_PARTICLES, _HYPER_SEED = 20, 2**30


@dataclasses.dataclass(frozen=True)
class Setup:
    """The data, the splits and the form of a posterior.

    **Attributes:**

    - `data`: the name of a data set.
    - `splits`: "released" for one split for all runs, or "random" for one split per run.
    - `form`: "paper" has hyper-parameters from SVGD, and the noise in the right units. "released"
        has the hyper-parameters that the authors stored, and their noise, which tempers the
        likelihood.
    - `hyper_steps`: the number of steps of SVGD.
    """

    data: str
    splits: str
    form: str
    hyper_steps: int = 2_000

    def problems(self, num_runs: int, hyper: list[list[float]] | None = None) -> list[BNN]:
        """The problem of each run. `hyper` has its hyper-parameters, if they are known already."""
        splits = ["released"] * num_runs if self.splits == "released" else list(range(num_runs))
        if hyper is None:
            return [_problem(self, split) for split in splits]
        return [
            self.problem(split, Hyper(*values)) for split, values in zip(splits, hyper, strict=True)
        ]

    def problem(self, split: Any, hyper: Hyper | None) -> BNN:
        return bnn(self.data, split=split, hyper=hyper, noise=self.form)  # type: ignore[arg-type]

    def for_choosing(self) -> "Setup":
        """The setup on which settings are chosen: the released split."""
        return dataclasses.replace(self, splits="released")


@functools.cache
def _problem(setup: Setup, split: Any) -> BNN:
    if setup.form == "released":
        return setup.problem(split, None)
    key = jax.random.fold_in(
        jax.random.key(_HYPER_SEED), zlib.crc32(f"{setup.data} {split}".encode())
    )
    return setup.problem(
        split, _find_hyper(key, setup.problem(split, Hyper(0.0, 0.0)), setup.hyper_steps)
    )


def _find_hyper(key: Array, problem: BNN, num_steps: int) -> Hyper:
    """Hyper-parameters from SVGD on weights and hyper-parameters together."""
    start_key, run_key, draw_key = jax.random.split(key, 3)
    start = problem.hyper_start(start_key, _HYPER_PARTICLES)
    method = SVGD(_HYPER_PARTICLES, num_steps, optimizer=_rmsprop(), start=start)
    fit = cast(Fit, run(run_key, problem.hyper_target(), method, chunk_size=1_000, progress=False))
    return problem.hyper_from_particles(
        finished([fit])[0].posterior.sample(draw_key, _HYPER_PARTICLES)
    )


def _rmsprop() -> optax.GradientTransformation:
    return optax.rmsprop(1e-3, decay=0.9, eps=1e-6, eps_in_sqrt=False, bias_correction=True)


@dataclasses.dataclass(frozen=True)
class _Networks(Cell):
    """The base class: test scores of every run, the chosen settings and the hyper-parameters."""

    experiment: str
    name: str
    setup: Setup
    seeds: int

    @abc.abstractmethod
    def _fits(self, problems: list[BNN]) -> tuple[list[Fit], dict[str, Any]]:
        """The fits, and the settings that were chosen for them."""

    def train(self) -> TrainedRuns:
        began = time.perf_counter()
        problems = self.setup.problems(self.seeds)
        fits, chosen = self._fits(problems)
        finished(fits)
        steps = max(fit.cost.steps for fit in fits)
        hyper = [[float(value) for value in problem.hyper] for problem in problems]
        return TrainedRuns(
            (tuple(fit.posterior for fit in fits),),
            (steps,),
            tuple(str(fit.status) for fit in fits),
            jnp.zeros((0, 0)),
            time.perf_counter() - began,
            fits[0].cost.seconds / max(1, steps),
            device(),
            json.dumps({"chosen": chosen, "hyper": hyper}),
        )

    def measure(self, runs: TrainedRuns) -> dict[str, Any]:
        problems = self.setup.problems(self.seeds, json.loads(runs.notes)["hyper"])
        rows = []
        for seed, (problem, posterior) in enumerate(zip(problems, runs.posteriors[0], strict=True)):
            draws = _draw(posterior)
            dev = {
                f"dev_{name}": value for name, value in _scores(problem.dev_scores, draws).items()
            }
            numbers = _scores(problem.test_scores, draws) | dev | problem.hyper._asdict()
            rows.append({"seed": seed} | {name: rounded(value) for name, value in numbers.items()})
        return {"rows": rows}


@dataclasses.dataclass(frozen=True)
class TrainedNetworks(_Networks):
    """A pretrained semi-implicit family. Learning rate and regularisation are chosen on the
    development rows.

    **Attributes:**

    - `learning_rates`, `weights`: the candidates. The weights are those of the log density in
        KSIVI's loss.
    - `choosing_steps`: the number of steps before the choice.
    - `pretraining`: steps on the squared error of the mean prediction.
    - `pretrained_on`: "train", or "dev" as in the released code. With "dev", the development error
        says little.
    """

    plan: TrainingPlan
    learning_rates: tuple[float, ...]
    weights: tuple[float, ...] = ()
    choosing_steps: int = 5_000
    pretraining: int = 100
    pretrained_on: str = "train"

    def _fits(self, problems):
        tried, rate, weight = _choose(
            dataclasses.replace(self, name="", setup=self.setup.for_choosing())
        )
        seeds, count = list(range(self.seeds)), self.seeds
        fits = self._train(problems, seeds, [rate] * count, [weight] * count, self.plan.num_steps)
        return fits, {"learning_rate": rate, "weight": weight, "tried": tried}

    def _train(
        self,
        problems: list[BNN],
        seeds: list[int],
        rates: list[float],
        weights: list[float | None],
        num_steps: int,
    ) -> list[Fit]:
        """One batch of runs. Each has its own problem, learning rate and weight."""
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        return self.plan.train(
            keys,
            [problem.target for problem in problems],
            start=self._pretrain(
                jax.vmap(lambda key: jax.random.fold_in(key, _PRETRAINING))(keys), problems
            ),
            objective=[
                self.plan.replace(log_density_weight=weight).objective() for weight in weights
            ],
            learning_rate=jnp.asarray(rates),
            num_steps=num_steps,
            chunk_size=1_000,
        )

    def _pretrain(self, keys, problems: list[BNN]) -> list[SemiImplicit]:
        objectives: list[AbstractObjective] = []
        for problem in problems:
            rows = (
                (problem.x_dev, problem.y_dev)
                if self.pretrained_on == "dev"
                else _some_rows(problem)
            )
            objectives.append(MeanPrediction(problem.predict, *rows, self.plan.num_samples))
        family = functools.partial(self.plan.family, dim=problems[0].target.dim)
        targets = [problem.target for problem in problems]
        fits = train(
            keys,
            targets,
            family,
            objectives,
            learning_rate=0.01,
            num_steps=self.pretraining,
            progress=False,
        )
        assert isinstance(fits, list)
        return [fit.posterior.family for fit in fits]  # type: ignore[misc]


@functools.cache
def _choose(cell: TrainedNetworks) -> tuple[list[dict[str, Any]], float, float | None]:
    """Tries every setting at least once, and takes the one with the least development error."""
    grid = list(itertools.product(cell.learning_rates, cell.weights or (None,)))
    if len(grid) == 1:
        return [], *grid[0]
    runs = list(itertools.islice(itertools.cycle(grid), max(len(grid), cell.seeds)))
    seeds = [_CHOOSING_SEED + i // len(grid) for i in range(len(runs))]
    problems = cell.setup.problems(len(runs))
    rates, weights = [rate for rate, _ in runs], [weight for _, weight in runs]
    fits = finished(cell._train(problems, seeds, rates, weights, cell.choosing_steps))
    errors = [_dev_error(problem, fit) for problem, fit in zip(problems, fits, strict=True)]
    tried = [
        {
            "learning_rate": rate,
            "weight": weight,
            "dev_rmse": rounded(np.mean(errors[i :: len(grid)])),
        }
        for i, (rate, weight) in enumerate(grid)
    ]
    return tried, *grid[tried.index(_best(tried))]


def _best(tried: list[dict[str, Any]]) -> dict[str, Any]:
    """The setting with the least development error. An error that is not finite is the largest."""
    return min(tried, key=lambda one: np.inf if one["dev_rmse"] is None else one["dev_rmse"])


@dataclasses.dataclass(frozen=True)
class SampledNetworks(_Networks):
    """100 chains of SGLD with a step size chosen on the development rows, or 100 particles of
    SVGD."""

    method: str
    num_steps: int
    step_sizes: tuple[float, ...] = ()

    def _fits(self, problems):
        problem = self.setup.for_choosing().problems(1)[0]
        seeds = range(_CHOOSING_SEED, _CHOOSING_SEED + _CHOOSING_RUNS)
        tried = []
        for size in self.step_sizes:
            fits = finished([self._run(problem, seed, size) for seed in seeds])
            errors = [_dev_error(problem, fit) for fit in fits]
            tried.append({"step_size": size, "dev_rmse": rounded(np.mean(errors))})
        best = _best(tried)["step_size"] if tried else None
        fits = [self._run(problem, seed, best) for seed, problem in enumerate(problems)]
        return fits, {"step_size": best, "tried": tried}

    def _run(self, problem: BNN, seed: int, step_size: float | None) -> Fit:
        start_key, run_key = jax.random.split(jax.random.key(seed))
        start = problem.start(start_key, _NUM_DRAWS)
        method: AbstractMethod
        if step_size is None:
            method = SVGD(_NUM_DRAWS, self.num_steps, optimizer=_rmsprop(), start=start)
        else:
            method = SGLD(step_size, _NUM_DRAWS, self.num_steps - 1, 1, thin=1, start=start)
        return cast(Fit, run(run_key, problem.target, method, chunk_size=1_000, progress=False))


def _some_rows(problem: BNN) -> tuple[Array, Array]:
    """As many training rows as there are development rows: enough for pretraining."""
    n = len(problem.y_dev)
    return problem.x_train[:n], problem.y_train[:n]


def _dev_error(problem: BNN, fit: Fit) -> float:
    """The RMSE on the development rows; infinite for a run that diverged, even if its last good
    parameters fit."""
    if fit.status.kind == "diverged":
        return np.inf
    return _scores(problem.dev_scores, _draw(fit.posterior))["rmse"]


def _scores(scores: Callable[[Array], dict[str, float]], draws: Array) -> dict[str, float]:
    """Scores of the draws; infinite where they, or their predictions, are not finite."""
    try:
        return scores(draws)
    except ValueError:
        return {"rmse": np.inf, "nll": np.inf}


def _draw(posterior: Posterior) -> Float[Array, "s d"]:
    return posterior.sample(measuring_key(3), _NUM_DRAWS)
