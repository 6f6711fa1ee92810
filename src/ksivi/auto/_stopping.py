"""When to stop the training: when the bound has settled."""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float

Ending = Literal["settled", "steps", "time"]
"""What ended the training at the full learning rate."""

_TOLERANCE = 0.02
"""Maximum change of the bound over one window, in nats."""
_CERTAINTY = 2.0
"""Number of standard errors by which a larger change must be excluded."""


def has_settled(losses: Float[np.ndarray, "r t"], fewest: int) -> bool:
    r"""Whether a change above the tolerance is excluded, for every run.

    The last third of the steps is compared with the third before it,

        |change| + 2 standard errors < tolerance,
        change = mean of the last third − mean of the third before,

    so that noise alone never stops a run: with more noise, longer windows are needed. A bound that
    is flat from the start, as for a Gaussian target, has settled after the minimum number of steps.
    A bound that rises has not: the family is still spreading.

    **Arguments:**

    - `losses`: one row per run; NaN where no step was taken.
    - `fewest`: minimum number of steps.
    """
    num_steps = losses.shape[1]
    window = num_steps // 3
    if num_steps < fewest:
        return False
    last, before = losses[:, -window:], losses[:, -2 * window : -window]
    change = np.nanmean(last, axis=1) - np.nanmean(before, axis=1)
    error = np.sqrt((np.nanvar(before, axis=1) + np.nanvar(last, axis=1)) / window)
    return bool(np.all(np.abs(change) + _CERTAINTY * error < _TOLERANCE))


def cooling_rates(rate: float, num_chunks: int) -> list[float]:
    """The learning rates of the last chunks: half a cosine from `rate` towards 0."""
    return [
        rate * 0.5 * (1 + math.cos(math.pi * (i + 0.5) / num_chunks)) for i in range(num_chunks)
    ]
