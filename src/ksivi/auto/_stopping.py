"""When to stop: once the bound surely changes no more than a little."""

import math

import numpy as np
from jaxtyping import Float

_TOLERANCE = 0.02
"""Nats that the bound may still change over one window."""
_CERTAINTY = 2.0
"""Standard errors by which a change must be ruled out."""


def has_settled(losses: Float[np.ndarray, "r t"], fewest: int) -> bool:
    r"""Whether a larger change than the tolerance is ruled out, for every run.

    The last third of the steps is compared with the third before,

        |change| + 2 standard errors < tolerance,   change = mean of the last third − mean of the one before,

    so that noise alone never stops a run: it makes the windows longer until the question can be answered. A bound
    that is flat from the start, as for a Gaussian target, is settled after the fewest steps. One that rises is not:
    the family is still spreading to where the target is.

    **Arguments:**

    - `losses`: a row a run; NaN where no step was taken.
    - `fewest`: steps before which nothing is settled.
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
    """Learning rates of the last chunks: half a cosine from `rate` down towards 0."""
    return [rate * 0.5 * (1 + math.cos(math.pi * (i + 0.5) / num_chunks)) for i in range(num_chunks)]
