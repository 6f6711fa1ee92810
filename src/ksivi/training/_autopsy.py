"""What was not finite: which quantity, in which coordinates, at which step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, PRNGKeyArray

from .._core.compile import one_shot
from ..targets import at_step
from ._step import Problem, TrainState, differentiate

_DRAWS, _AT_ONCE = 1_000, 50


@dataclasses.dataclass(frozen=True)
class NotFinite:
    """What was seen at the step that a run could not take.

    **Attributes:**

    - `step`: its number.
    - `quantity`: "log density", "score", or "gradient" where those are finite and the loss or its derivative is not.
    - `coordinates`: of the score, counted from 0; for a gradient, the names of the parameters it belongs to.
    - `share`: of the draws at that step; NaN for a gradient.
    """

    step: int
    quantity: str
    coordinates: tuple[int | str, ...]
    share: float

    def __post_init__(self):
        object.__setattr__(self, "coordinates", tuple(self.coordinates))  # JSON has lists

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.coordinates[:8])) + (", …" if len(self.coordinates) > 8 else "")
        where = f" in {shown}" if self.coordinates else ""
        at = "" if np.isnan(self.share) else f" at {self.share:.2%} of the draws"
        return f"the {self.quantity}{where}{at}, at step {self.step:,}"


def examine(key: PRNGKeyArray, problem: Problem, state: TrainState) -> NotFinite:
    """Looks at the state before the step: at draws of the family there, then at the gradient of that very step.

    **Arguments:**

    - `key`: that of the steps, which fold their number into it.
    """
    bad_value, bad_score, bad_gradient = (np.asarray(found) for found in _look(key, problem, state))
    step = int(state.step)
    if bad_score.any():
        return NotFinite(step, "score", tuple(np.flatnonzero(bad_score.any(axis=0)).tolist()), _share(bad_score))
    if bad_value.any():
        return NotFinite(step, "log density", (), _share(bad_value[:, None]))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state.params)]
    return NotFinite(step, "gradient", tuple(np.array(names)[bad_gradient].tolist()), float("nan"))


def _share(bad: np.ndarray) -> float:
    return float(bad.any(axis=1).mean())


@one_shot
def _look(
    key: PRNGKeyArray, problem: Problem, state: TrainState
) -> tuple[Bool[Array, " n"], Bool[Array, "n d"], Bool[Array, " p"]]:
    """Which log densities, scores and gradients of parameters are not finite."""
    family, step_key = problem.family(state.params), jax.random.fold_in(key, state.step)
    target = at_step(problem.target, jnp.zeros((), jnp.int32)).minibatch(step_key)
    x = family.sample(step_key, _DRAWS)
    score = lax.map(target.score, x, batch_size=_AT_ONCE)
    value = lax.map(target.log_density, x, batch_size=_AT_ONCE) if target.has_log_density else jnp.zeros(_DRAWS)
    draws = problem.draw(step_key, problem.target, family)
    leaves = jax.tree.leaves(differentiate(state, draws, problem)[1][1])
    return ~jnp.isfinite(value), ~jnp.isfinite(score), jnp.stack([~jnp.all(jnp.isfinite(leaf)) for leaf in leaves])
