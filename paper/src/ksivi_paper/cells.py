"""Cells. A cell is one entry of the paper's tables and figures: what to train, and what to
measure."""

import abc
import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ksivi import problems
from ksivi.comparison import Truth, know_truth
from ksivi.problems import AbstractProblem
from ksivi.results import Fit, Posterior, archive

REDRAWS = 10
_TRUTH_SEED = 2024
_SPEC_VERSION = 2
"""Raise it when the code changes the result of a spec. All cells are then trained and measured
again."""


@dataclasses.dataclass(frozen=True)
class ProblemSpec:
    """The name and the options of a problem, as plain values that can be written to a file."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, name: str, **options: Any) -> "ProblemSpec":
        return cls(name, tuple(sorted(options.items())))

    def make(self) -> AbstractProblem:
        """The problem. It is made once in a process."""
        return _make(self)

    def truth(self) -> Truth:
        """Ten blocks of 1,000 draws of the truth, the same for every cell."""
        return _truth(self)


@functools.cache
def _make(spec: ProblemSpec) -> AbstractProblem:
    options = dict(spec.options)
    if spec.name == "waveform" and options.pop("data", "generated") == "authors":
        options["data"] = problems.locate("waveform.mat")
    return problems.BY_NAME[spec.name](**options)


@functools.cache
def _truth(spec: ProblemSpec) -> Truth:
    return know_truth(jax.random.key(_TRUTH_SEED), spec.make(), REDRAWS)


@archive.register
class TrainedRuns(eqx.Module):
    """The result of training: the posteriors of all runs at all snapshots, the losses and the cost.

    **Attributes:**

    - `posteriors`: for each snapshot, one posterior per run.
    - `steps`: the step of each snapshot.
    - `status`: the status of each run.
    - `losses`: for each run, mean losses over intervals of steps.
    - `seconds`: wall-clock time, including compilation.
    - `seconds_a_step`: time of one step of all runs of a batch together. For trained families it
        excludes compilation.
    - `device`: the device, and the version of JAX.
    - `notes`: anything else that a cell keeps, as JSON.
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
        """Sent to other processes in the format of saved files, without the targets and their
        code."""
        return archive.unpack, (archive.pack(self),)


class Cell(abc.ABC):
    """One cell.

    Subclasses are frozen dataclasses of plain values, and these values are the spec.
    """

    experiment: str
    name: str

    @abc.abstractmethod
    def train(self) -> TrainedRuns:
        """Trains. This part needs an accelerator."""

    @abc.abstractmethod
    def measure(self, runs: TrainedRuns) -> dict[str, Any]:
        """Measures the posteriors against the truth: numbers in lists and dicts."""

    @property
    def spec(self) -> dict[str, Any]:
        """Everything that decides the numbers."""
        assert dataclasses.is_dataclass(self)
        return {"kind": type(self).__name__, "recipe": _SPEC_VERSION, **dataclasses.asdict(self)}

    @property
    def training_spec(self) -> dict[str, Any]:
        """Everything that decides the result of training.

        A change of the measures needs no new training.
        """
        return {
            name: value
            for name, value in self.spec.items()
            if name not in ("measured", "at_end", "shown")
        }


def finished(fits: list[Fit]) -> list[Fit]:
    """The fits.

    Raises `KeyboardInterrupt` if Ctrl-C ended one of them, because that fit is not complete.
    """
    if any(fit.status.kind == "interrupted" for fit in fits):
        raise KeyboardInterrupt
    return fits


def device() -> str:
    """The device of this process, and the version of JAX."""
    return f"{jax.devices()[0].device_kind}, JAX {jax.__version__}"
