"""What every objective shares: the annealed target, and the numbers that each step records."""

from collections.abc import Callable

from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from ..targets import Target, stein_ratio

Schedule = Callable[[Int[Array, ""]], Scalar]
Aux = dict[str, Scalar]


def as_schedule(schedule: Schedule | None, name: str, example: str) -> Schedule | None:
    if schedule is not None and not callable(schedule):
        raise ValueError(f"{name} must be a function of the step, such as {example}, got {schedule!r}")
    return schedule


def anneal(target: Target, annealing: Schedule | None, step: Int[Array, ""]) -> tuple[Target, Scalar | None]:
    """The target at this step, and its inverse temperature where there is one."""
    if annealing is None:
        return target, None
    beta = annealing(step)
    return target.tempered(beta), beta


def record(x: Float[Array, "n d"], score: Float[Array, "n d"], others: Float[Array, "m d"], beta: Scalar | None) -> Aux:
    """The Stein ratio, against the target itself where an annealed one's score came, and the inverse temperature."""
    x, score, others = lax.stop_gradient((x, score, others))
    ratio = stein_ratio(x, score, others)
    if beta is None:
        return {"stein_ratio": ratio}
    return {"stein_ratio": ratio / beta, "inverse_temperature": beta}
