"""What the checks say of each number of the model."""

import numpy as np
from jaxtyping import Float

from ..diagnostics import Better, error_bounds, truncated_weights
from ..results import Numbers, ParameterChecks, Posterior, numbers_of
from ._doubts import Findings


def checked_parameters(posterior: Posterior, findings: Findings) -> ParameterChecks | None:
    """Moments, quantiles and bounds of each number; None if the draws were not checked.

    The bounds come from the chains and the weights of the checks. Nothing is evaluated again.
    """
    draws, moved = findings.draws, findings.moved
    if draws is None or moved is None:
        return None
    numbers = numbers_of(posterior)
    on_scale = numbers.of(draws)
    bounds = error_bounds(on_scale, _better(numbers, findings))
    return ParameterChecks.of(numbers.names, on_scale, bounds)


def _better(numbers: Numbers, findings: Findings) -> Better:
    """What the draws are compared with, on the model's own scale."""
    moved, weighed = findings.moved, findings.weighed
    assert moved is not None
    states = moved.states if findings.has_settled else moved.kept
    before = None if findings.has_settled else numbers.of(moved.before)
    if weighed is None or not findings.is_light:
        return Better(_of_each(numbers, states), before)
    weights = truncated_weights(weighed.log_weights)
    return Better(_of_each(numbers, states), before, numbers.of(weighed.draws), weights)


def _of_each(numbers: Numbers, states: Float[np.ndarray, "k c d"]) -> Float[np.ndarray, "k c p"]:
    return numbers.of(states.reshape(-1, states.shape[2])).reshape(*states.shape[:2], -1)
