"""A cell: one entry of the paper's tables and figures, as a value. What it trains, and what is measured of it."""

import abc
import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ksivi import problems
from ksivi._core import archive
from ksivi.comparison import Truth, know_truth
from ksivi.problems import AbstractProblem
from ksivi.results import Fit, Posterior

REDRAWS = 10
_TRUTH_SEED = 2024
_RECIPE = 2
"""Raised when code changes what a spec gives: records and training of before are then made again."""


@dataclasses.dataclass(frozen=True)
class Where:
    """A problem by its name and options, so that it can be written down."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def make(self) -> AbstractProblem:
        return _make(self)

    def truth(self) -> Truth:
        """Ten blocks of a thousand draws of the truth, the same for every cell."""
        return _know(self)


def where(name: str, **options: Any) -> Where:
    return Where(name, tuple(sorted(options.items())))


@functools.cache
def _make(place: Where) -> AbstractProblem:
    makers: dict[str, Any] = {
        "banana": problems.banana,
        "multimodal": problems.multimodal,
        "x-shaped": problems.x_shaped,
        "student-t": problems.student_t,
        "waveform": problems.waveform,
        "diffusion": problems.diffusion,
    }
    options = dict(place.options)
    if place.name == "waveform" and options.pop("data", "generated") == "authors":
        options["data"] = problems.locate("waveform.mat")
    return makers[place.name](**options)


@functools.cache
def _know(place: Where) -> Truth:
    return know_truth(jax.random.key(_TRUTH_SEED), place.make(), REDRAWS)


@archive.register
class Runs(eqx.Module):
    """What training leaves: posteriors by snapshot and run, the losses, and what it cost.

    **Attributes:**

    - `posteriors`: for each snapshot, one a run.
    - `steps`: of the snapshots.
    - `status`: how each run ended.
    - `losses`: means over stretches of steps, for each run.
    - `seconds`: of wall clock, compilation included.
    - `seconds_a_step`: for all runs of a batch together; of training once compiled, of others compilation included.
    - `device`: what it ran on.
    - `notes`: more that a cell wants to remember, in JSON.
    """

    posteriors: tuple[tuple[Posterior, ...], ...]
    steps: tuple[int, ...]
    status: tuple[str, ...]
    losses: Float[Array, "r t"]
    seconds: float
    seconds_a_step: float
    device: str
    notes: str = "{}"

    def __reduce__(self) -> tuple:
        """Between processes they travel as the file that they leave, without the targets and their code."""
        return archive.unpack, (archive.pack(self),)


class Cell(abc.ABC):
    """One cell. Subclasses are frozen dataclasses of plain values: the spec is what they hold."""

    experiment: str
    name: str

    @abc.abstractmethod
    def train(self) -> Runs:
        """The part that wants an accelerator."""

    @abc.abstractmethod
    def measure(self, runs: Runs) -> dict[str, Any]:
        """The part that wants a truth: numbers in lists and dicts."""

    @property
    def spec(self) -> dict[str, Any]:
        """Everything that decides the numbers."""
        assert dataclasses.is_dataclass(self)
        return {"kind": type(self).__name__, "recipe": _RECIPE, **dataclasses.asdict(self)}

    @property
    def training_spec(self) -> dict[str, Any]:
        """Everything that decides what training leaves: other measures of it need no training."""
        return {name: value for name, value in self.spec.items() if name not in ("measured", "at_end", "shown")}


def finished(fits: list[Fit]) -> list[Fit]:
    """The fits; a run that Ctrl-C ended is not one, and ends the whole."""
    if any(fit.status.kind == "interrupted" for fit in fits):
        raise KeyboardInterrupt
    return fits


def device() -> str:
    """What this process computes on, and with."""
    return f"{jax.devices()[0].device_kind}, JAX {jax.__version__}"
