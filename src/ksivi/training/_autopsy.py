"""Finds what was not finite: which quantity, in which coordinates, at which step."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, PRNGKeyArray

from .._core.compile import one_shot
from ..results import NotFinite
from ..targets import at_step
from ._step import Setup, TrainState, differentiate

_DRAWS, _BATCH_SIZE = 1_000, 50


def examine(key: PRNGKeyArray, setup: Setup, state: TrainState) -> NotFinite:
    """What is not finite at this state: the score or log density at draws, or the gradient.

    **Arguments:**

    - `key`: the key of the run. Each step folds its number into it.
    """
    bad_value, bad_score, bad_gradient = (np.asarray(found) for found in _look(key, setup, state))
    step = int(state.step)
    if bad_score.any():
        return NotFinite(
            step, "score", tuple(np.flatnonzero(bad_score.any(axis=0)).tolist()), _share(bad_score)
        )
    if bad_value.any():
        return NotFinite(step, "log density", (), _share(bad_value[:, None]))
    names = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state.params)
    ]
    return NotFinite(step, "gradient", tuple(np.array(names)[bad_gradient].tolist()), float("nan"))


def _share(bad: np.ndarray) -> float:
    return float(bad.any(axis=1).mean())


@one_shot
def _look(
    key: PRNGKeyArray, setup: Setup, state: TrainState
) -> tuple[Bool[Array, " n"], Bool[Array, "n d"], Bool[Array, " p"]]:
    """Which log densities, scores and gradients with respect to parameters are not finite."""
    family, step_key = setup.family(state.params), jax.random.fold_in(key, state.step)
    target = at_step(setup.target, jnp.zeros((), jnp.int32)).minibatch(step_key)
    x = family.sample(step_key, _DRAWS)
    score = lax.map(target.score, x, batch_size=_BATCH_SIZE)
    value = (
        lax.map(target.log_density, x, batch_size=_BATCH_SIZE)
        if target.has_log_density
        else jnp.zeros(_DRAWS)
    )
    draws = setup.draw(step_key, setup.target, family)
    leaves = jax.tree.leaves(differentiate(state, draws, setup)[1][1])
    return (
        ~jnp.isfinite(value),
        ~jnp.isfinite(score),
        jnp.stack([~jnp.all(jnp.isfinite(leaf)) for leaf in leaves]),
    )
