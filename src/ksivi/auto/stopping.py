"""When to stop: once the loss surely falls no more than a little."""

import math

import numpy as np
from jaxtyping import Float

_TOLERANCE = 0.02
"""Nats that the loss may still fall over one window."""
_CERTAINTY = 2.0
"""Standard errors by which a fall must be ruled out."""


def has_settled(losses: Float[np.ndarray, "r t"], fewest: int) -> bool:
    r"""Whether a larger fall than the tolerance is ruled out, for every run.

    The last third of the steps is compared with the third before,

        fall + 2 standard errors < tolerance,   fall = mean of the earlier third − mean of the last,

    so that noise alone never stops a run: it makes the windows longer until the question can be answered. A loss
    that is flat from the start, as for a Gaussian target, is settled after the fewest steps.

    **Arguments:**

    - `losses`: a row a run.
    - `fewest`: steps before which nothing is settled.
    """
    num_steps = losses.shape[1]
    window = num_steps // 3
    if num_steps < fewest:
        return False
    last, before = losses[:, -window:], losses[:, -2 * window : -window]
    fall = before.mean(axis=1) - last.mean(axis=1)
    error = np.sqrt((before.var(axis=1) + last.var(axis=1)) / window)
    return bool(np.all(fall + _CERTAINTY * error < _TOLERANCE))


def cooling_rates(rate: float, num_chunks: int) -> list[float]:
    """Learning rates of the last chunks: half a cosine from `rate` down towards 0."""
    return [rate * 0.5 * (1 + math.cos(math.pi * (i + 0.5) / num_chunks)) for i in range(num_chunks)]
