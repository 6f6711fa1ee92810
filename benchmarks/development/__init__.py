"""The development set: posteriors that `ksivi.fit` is measured on, each with draws of its truth."""

import dataclasses
import functools

import jax
import numpy as np

from ksivi import problems

from . import exact, held_out, mixtures, models, posteriordb
from .base import NUM_TRUTH, Case

_TOYS = (problems.banana, problems.multimodal, problems.x_shaped)


def cases() -> list[Case]:
    """All that this machine has the data for, the held-out ones last."""
    problem_cases = [_of_problem(make()) for make in _TOYS]
    problem_cases += [_of_problem(problems.waveform()), _of_problem(problems.diffusion(dim=100))]
    unseen = [dataclasses.replace(case, held_out=True) for case in held_out.cases()]
    return [*posteriordb.cases(), *problem_cases, *exact.cases(), *models.cases(), *unseen]


def _of_problem(problem: problems.AbstractProblem) -> Case:
    truth = functools.partial(problem.reference, jax.random.key(7), NUM_TRUTH)
    return Case(problem.name, problem.target, lambda: np.asarray(truth()))


__all__ = ["Case", "cases", "mixtures"]
