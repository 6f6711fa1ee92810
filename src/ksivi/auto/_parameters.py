"""What the checks say of each number of the model."""

import numpy as np
from jaxtyping import Float

from ..diagnostics import Better, Importance, Movement, error_bounds, truncated_weights
from ..results import Numbers, ParameterChecks, Posterior, numbers_of

Draws = Float[np.ndarray, "n d"]


def checked_parameters(
    posterior: Posterior,
    draws: Draws,
    moved: Movement,
    weighed: Importance | None,
    has_settled: bool,
) -> ParameterChecks:
    """Moments, quantiles and bounds of each number. Nothing is evaluated again.

    **Arguments:**

    - `draws`: draws of the posterior.
    - `moved`, `has_settled`: chains, and whether they ran before, until they had settled. Else they
        started from other draws of the posterior.
    - `weighed`: weighted draws, if their weights are reliable.
    """
    numbers = numbers_of(posterior)
    on_scale = numbers.of(draws)
    states = _of_each(numbers, moved.states if has_settled else moved.kept)
    better = Better(states, None if has_settled else numbers.of(moved.before))
    if weighed is not None:
        weights = truncated_weights(weighed.log_weights)
        better = better._replace(weighed=numbers.of(weighed.draws), weights=weights)
    return ParameterChecks.of(numbers.names, on_scale, error_bounds(on_scale, better))


def _of_each(numbers: Numbers, states: Float[np.ndarray, "k c d"]) -> Float[np.ndarray, "k c p"]:
    return numbers.of(states.reshape(-1, states.shape[2])).reshape(*states.shape[:2], -1)
