"""The experiment of the page of all methods: every trained method on every problem, ten seeds each.

Settings are those of the preset "paper" of `ksivi compare`; the networks choose their learning rate
on development rows, like those of the paper. Four methods have networks in the paper's experiment
already, and the robust setting has an experiment of its own. They are the same cells here, so what
has run there does not run again.
"""

import dataclasses
import functools
from collections import ChainMap
from typing import Any, get_args

from ksivi.comparison import TrainedMethod

from . import specs
from .cells import Cell
from .experiments import EXPERIMENTS, UCI, for_preset, network, paper_plan, smoke_network
from .networks import Setup
from .specs import DIMENSIONS, PATHS, SEEDS, TOYS
from .training import Training

ROBUST = "ksivi-robust"
_TRAINED: tuple[TrainedMethod, ...] = get_args(TrainedMethod)
METHODS = (*_TRAINED, ROBUST)
NETWORKS = UCI
# What these methods have of their own. The rest is that of the paper's networks. A batch has ten
# runs, and AISIVI's K is that of the diffusions, which have as many dimensions.
_NETWORK_OPTIONS: dict[str, dict[str, Any]] = {
    "kpg-is": {"num_mixing": 10, "critic_hidden": (128, 128), "critic_rate": 1e-3},
    "denoised-score": {"critic_hidden": (128, 128), "critic_rate": 1e-3},
    "aisivi": {"num_mixing": 256},
}


def methods(preset: str) -> list[Cell]:
    """All methods on the toys, waveform, the diffusions (released drift) and the networks.

    The problems that take longest come first, so that processes that share a folder end together.
    """
    paths, others = _cells(PATHS[::-1], preset), _cells(("waveform", *TOYS), preset)
    return [*EXPERIMENTS["robust"](preset), *paths, *_networks(preset), *others]


def _cells(problems: tuple[str, ...], preset: str) -> list[Cell]:
    found = specs.of_preset(problems, preset)
    cells: list[Cell] = [_cell(name, method, preset) for name in found for method in _TRAINED]
    smaller = for_preset(preset, cells)
    return smaller if preset == "paper" else [_smaller(cell) for cell in smaller]


def _smaller(cell: Cell) -> Cell:
    """Even fewer steps, and narrow inner networks: wide ones take minutes on a CPU."""
    assert isinstance(cell, Training)
    plan = cell.plan.replace(num_steps=100, critic_hidden=(32, 32))
    return dataclasses.replace(cell, plan=plan)


def cell_of(problem: str, method: str, preset: str) -> tuple[str, str]:
    """The experiment and the name of the cell of a method on a problem."""
    if method == ROBUST:
        return "robust", problem
    if problem in DIMENSIONS:
        return "methods", f"{problem}-{method}"
    cell = _network(problem, method, preset)  # type: ignore[arg-type]
    return cell.experiment, cell.name


def _cell(problem: str, method: TrainedMethod, preset: str) -> Training:
    plan = paper_plan(
        method, problem.partition("-")[0] if problem in PATHS else problem, DIMENSIONS[problem]
    )
    spec, name = specs.spec(problem, preset), f"{problem}-{method}"
    return Training("methods", name, spec, plan, SEEDS, measured=specs.measured(problem))


def network_sets(preset: str) -> tuple[str, ...]:
    """The data sets of the preset."""
    return NETWORKS if preset == "paper" else ("friedman",)


def _networks(preset: str) -> list[Cell]:
    return [_network(data, method, preset) for data in network_sets(preset) for method in _TRAINED]


def _network(data: str, method: TrainedMethod, preset: str) -> Cell:
    """The released split and form: the setting in which others have published their numbers."""
    setup = Setup(data, "released", "released") if preset == "paper" else _smoke_setup(data)
    cell = network(setup, method, **_NETWORK_OPTIONS.get(method, {}))
    if preset == "smoke":
        cell = smoke_network(cell)  # type: ignore[assignment]
    there = (cell.experiment, cell.name) in _papers_networks(preset)
    return cell if there else dataclasses.replace(cell, experiment="methods")


def _smoke_setup(data: str) -> Setup:
    return Setup(data, "released", "paper", 10)


@functools.cache
def _papers_networks(preset: str) -> frozenset[tuple[str, str]]:
    return frozenset((cell.experiment, cell.name) for cell in EXPERIMENTS["bnn"](preset))


ALL_EXPERIMENTS = ChainMap({"methods": methods}, EXPERIMENTS)
"""The paper's experiments, and the one of the page of all methods."""
