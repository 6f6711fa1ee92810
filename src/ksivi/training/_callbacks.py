"""Callbacks: what they see after each chunk of steps, and how they end a run."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What a callback sees after each chunk of steps.

    **Attributes:**

    - `step`, `num_steps`: how far the run is.
    - `loss`: its mean over the chunk (and over the runs, for a batch of keys).
    - `seconds`: since the start.
    - `steps_per_second`: over this chunk.
    - `posteriors`: makes the current `Posterior` of every run.
    """

    step: int
    num_steps: int
    loss: float
    seconds: float
    steps_per_second: float
    posteriors: Callable[[], list[Any]]


Callback = Callable[[Chunk], Any]


def told_to_stop(callbacks: Sequence[Callback], chunk: Chunk) -> bool:
    """Calls every callback; whether any returned True."""
    answers = [callback(chunk) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and answer for answer in answers)
