"""Cells of Bayesian neural networks: settings chosen on development rows, then ten runs scored on test rows."""

import abc
import dataclasses
import functools
import itertools
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ..comparison import Plan
from ..families import SemiImplicit
from ..mcmc import SGLD
from ..methods import AbstractMethod, run
from ..objectives import AbstractObjective, MeanPrediction
from ..particles import SVGD
from ..posterior import Fit, Posterior
from ..problems import BNN, Hyper, bnn
from ..training import train
from .cells import Cell, Runs, device
from .measures import rounded

_NUM_DRAWS = 100
_HYPER_PARTICLES = 20


@dataclasses.dataclass(frozen=True)
class Setup:
    """Which posterior.

    **Attributes:**

    - `data`: the name of a set.
    - `splits`: "released", one split for all runs, or "random", one a run.
    - `form`: "paper" has the hyper-parameters of its own SVGD and the noise in the right units; "released" has those
        that the authors stored, and their noise, which tempers the likelihood.
    - `hyper_steps`: of that SVGD.
    """

    data: str
    splits: str
    form: str
    hyper_steps: int = 2_000

    def problems(self, num_runs: int) -> list[BNN]:
        """The problem of each run."""
        if self.splits == "released":
            return [_problem(self, "released")] * num_runs
        return [_problem(self, seed) for seed in range(num_runs)]

    def to_choose_on(self) -> "Setup":
        """Settings are chosen once, on the released split."""
        return dataclasses.replace(self, splits="released")


@functools.cache
def _problem(setup: Setup, split: Any) -> BNN:
    if setup.form == "released":
        return bnn(setup.data, split=split, noise="released")
    problem = bnn(setup.data, split=split, hyper=Hyper(0.0, 0.0))
    return bnn(setup.data, split=split, hyper=_find_hyper(problem, setup.hyper_steps))


def _find_hyper(problem: BNN, num_steps: int) -> Hyper:
    """Hyper-parameters from SVGD on weights and hyper-parameters together."""
    start_key, run_key, draw_key = jax.random.split(jax.random.key(0), 3)
    start = problem.hyper_start(start_key, _HYPER_PARTICLES)
    method = SVGD(_HYPER_PARTICLES, num_steps, optimizer=_rmsprop(), start=start)
    fit = run(run_key, problem.hyper_target(), method, chunk_size=1_000, progress=False)
    return problem.hyper_from_particles(fit.posterior.sample(draw_key, _HYPER_PARTICLES))


def _rmsprop() -> optax.GradientTransformation:
    return optax.rmsprop(1e-3, decay=0.9, eps=1e-6, eps_in_sqrt=False, bias_correction=True)


@dataclasses.dataclass(frozen=True)
class _Networks(Cell):
    """What cells of networks share: the test scores of every run, beside the choice and the hyper-parameters."""

    experiment: str
    name: str
    setup: Setup
    seeds: int

    @abc.abstractmethod
    def _fits(self) -> tuple[list[Fit], dict[str, Any]]:
        """The runs, and the settings that were chosen for them."""

    def train(self) -> Runs:
        began = time.perf_counter()
        fits, chosen = self._fits()
        steps = fits[0].cost.steps
        a_step = fits[0].cost.seconds / max(1, steps)
        status = tuple(str(fit.status) for fit in fits)
        posteriors = (tuple(fit.posterior for fit in fits),)
        seconds = time.perf_counter() - began
        notes = json.dumps({"chosen": chosen})
        return Runs(posteriors, (steps,), status, jnp.zeros((0, 0)), seconds, a_step, device(), notes)

    def measure(self, runs: Runs) -> dict[str, Any]:
        problems = self.setup.problems(self.seeds)
        rows = []
        for seed, (problem, posterior) in enumerate(zip(problems, runs.posteriors[0], strict=True)):
            draws = _draw(posterior)
            scores = problem.test_scores(draws) | {f"dev_{k}": v for k, v in problem.dev_scores(draws).items()}
            hyper = {"log_gamma": problem.hyper.log_gamma, "log_lambda": problem.hyper.log_lambda}
            rows.append({"seed": seed} | {name: rounded(value) for name, value in (scores | hyper).items()})
        return {"rows": rows}


@dataclasses.dataclass(frozen=True)
class TrainedNetworks(_Networks):
    """A semi-implicit family, pretrained on the development rows; learning rate and regularisation chosen there.

    **Attributes:**

    - `learning_rates`, `weights`: to choose from; the weights are of KSIVI's log density.
    - `choosing_steps`: after which the choice is made.
    - `pretraining`: steps on the squared error of the mean prediction. It sees training rows; the released code takes
        the development rows, whose error then says little of a setting.
    """

    plan: Plan
    learning_rates: tuple[float, ...]
    weights: tuple[float, ...] = ()
    choosing_steps: int = 5_000
    pretraining: int = 100

    def _fits(self):
        tried, rate, weight = _choose(dataclasses.replace(self, name="", setup=self.setup.to_choose_on()))
        problems = self.setup.problems(self.seeds)
        seeds, count = list(range(self.seeds)), self.seeds
        fits = self._train(problems, seeds, [rate] * count, [weight] * count, self.plan.num_steps)
        return fits, {"learning_rate": rate, "weight": weight, "tried": tried}

    def _train(
        self, problems: list[BNN], seeds: list[int], rates: list[float], weights: list[float | None], num_steps: int
    ) -> list[Fit]:
        """Runs at once, each on a problem of its own, at its own rate and weight."""
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        return self.plan.train(
            keys,
            [problem.target for problem in problems],
            start=self._pretrain(keys, problems),
            objective=[self.plan.but(log_density_weight=weight).objective() for weight in weights],
            learning_rate=jnp.asarray(rates),
            num_steps=num_steps,
            chunk_size=1_000,
        )

    def _pretrain(self, keys, problems: list[BNN]) -> list[SemiImplicit]:
        objectives: list[AbstractObjective] = []
        for problem in problems:
            objectives.append(MeanPrediction(problem.predict, *_some_rows(problem), self.plan.num_samples))
        family = functools.partial(self.plan.family, dim=problems[0].target.dim)
        targets = [problem.target for problem in problems]
        fits = train(keys, targets, family, objectives, learning_rate=0.01, num_steps=self.pretraining, progress=False)
        assert isinstance(fits, list)
        return [fit.posterior.family for fit in fits]  # type: ignore[misc]


@functools.cache
def _choose(cell: TrainedNetworks) -> tuple[list[dict[str, Any]], float, float | None]:
    """Every setting once or twice, as many runs as the cell itself has; the one with the least development error."""
    grid = list(itertools.product(cell.learning_rates, cell.weights or (None,)))
    runs = list(itertools.islice(itertools.cycle(grid), max(len(grid), cell.seeds)))
    seeds = [100 + i // len(grid) for i in range(len(runs))]
    problems = cell.setup.problems(len(runs))
    rates, weights = [rate for rate, _ in runs], [weight for _, weight in runs]
    fits = cell._train(problems, seeds, rates, weights, cell.choosing_steps)
    errors = [_dev_error(problem, fit) for problem, fit in zip(problems, fits, strict=True)]
    tried = [
        {"learning_rate": rate, "weight": weight, "dev_rmse": rounded(np.mean(errors[i :: len(grid)]))}
        for i, (rate, weight) in enumerate(grid)
    ]
    best = int(np.argmin([np.inf if one["dev_rmse"] is None else one["dev_rmse"] for one in tried]))
    return tried, *grid[best]


@dataclasses.dataclass(frozen=True)
class SampledNetworks(_Networks):
    """A hundred chains of SGLD at a step size chosen on the development rows, or as many particles of SVGD."""

    method: str
    num_steps: int
    step_sizes: tuple[float, ...] = ()

    def _fits(self):
        tried = []
        problem = self.setup.to_choose_on().problems(1)[0]
        for size in self.step_sizes:
            tried.append({"step_size": size, "dev_rmse": rounded(_dev_error(problem, self._run(problem, 100, size)))})
        best = min(tried, key=lambda one: one["dev_rmse"] or np.inf)["step_size"] if tried else None
        problems = self.setup.problems(self.seeds)
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
        return run(run_key, problem.target, method, chunk_size=1_000, progress=False)


def _some_rows(problem: BNN) -> tuple[Array, Array]:
    """As many training rows as there are for development: enough to pretrain on."""
    n = len(problem.y_dev)
    return problem.x_train[:n], problem.y_train[:n]


def _dev_error(problem: BNN, fit: Fit) -> float:
    draws = _draw(fit.posterior)
    return problem.dev_scores(draws)["rmse"] if bool(jnp.isfinite(draws).all()) else np.inf


def _draw(posterior: Posterior) -> Float[Array, "s d"]:
    return posterior.sample(jax.random.key(1), _NUM_DRAWS)
