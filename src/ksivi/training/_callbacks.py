"""Callbacks, which are called after each chunk of steps and can end a run."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The argument of a callback, which is called after each chunk of steps.

    **Attributes:**

    - `step`, `num_steps`: the number of steps done, and in all.
    - `loss`: the mean loss over the chunk (and over the runs, for a batch of keys).
    - `seconds`: time since the start.
    - `steps_per_second`: the speed in this chunk.
    - `posteriors`: a function that returns the current `Posterior` of every run.
    """

    step: int
    num_steps: int
    loss: float
    seconds: float
    steps_per_second: float
    posteriors: Callable[[], list[Any]]


Callback = Callable[[Chunk], Any]


def stop_requested(callbacks: Sequence[Callback], chunk: Chunk) -> bool:
    """Calls every callback. Returns whether any of them returned True."""
    answers = [callback(chunk) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and answer for answer in answers)
