"""The variance of an objective's stochastic gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from .._core.checks import as_count, as_single_key
from .._core.compile import jit
from ..families import SemiImplicit, trainable
from ..objectives import AbstractObjective
from ..targets import Target


def gradient_variance(
    key: PRNGKeyArray,
    objective: AbstractObjective,
    target: Target,
    family: SemiImplicit,
    num_repeats: int = 100,
    *,
    step: int = 0,
) -> tuple[float, float]:
    r"""tr Cov(g) of the stochastic gradient g at a fixed family, and its standard error.

        1/R Σᵣ ½ ‖gᵣ − gᵣ′‖²,   (gᵣ, gᵣ′) independent pairs,

    summed over the family's trained parameters. The estimate is unbiased and needs the memory of
    one pair.

    **Arguments:**

    - `objective`: an inner state, such as a critic or chains, is the initial one.
    - `num_repeats`: R, the number of pairs of gradients.
    - `step`: the step at which schedules are evaluated.

    ```python
    family = ksivi.SemiImplicit.location_scale(2)
    for estimator in ("vanilla", "u-statistic"):
        objective = ksivi.KSIVI(estimator=estimator, num_samples=20)
        found = ksivi.diagnostics.gradient_variance(jax.random.key(0), objective, target, family)
    ```
    """
    if not isinstance(objective, AbstractObjective):
        raise ValueError(
            f"objective must be one of ksivi's objectives, such as ksivi.KSIVI(), got {objective!r}"
        )
    if not isinstance(target, Target) or not isinstance(family, SemiImplicit):
        raise ValueError(
            f"target and family must be a Target and a SemiImplicit, got {type(target)}, {type(family)}"
        )
    if target.dim != family.dim:
        raise ValueError(f"family must have the target's dim {target.dim}, got dim {family.dim}")
    state_key, pairs_key = jax.random.split(as_single_key(key))
    state = objective.init(state_key, target, family)
    keys = jax.random.split(pairs_key, (as_count(num_repeats, "num_repeats", minimum=2), 2))
    now = jnp.asarray(as_count(step, "step", minimum=0), jnp.int32)
    halves = np.asarray(
        _half_squared_distances(keys, objective, target, family, state, now), np.float64
    )
    return float(halves.mean()), float(halves.std(ddof=1) / np.sqrt(len(halves)))


@jit
def _half_squared_distances(
    keys: PRNGKeyArray,
    objective: AbstractObjective,
    target: Target,
    family: SemiImplicit,
    state: PyTree,
    step: Scalar,
) -> Float[Array, " r"]:
    params, frozen = eqx.partition(family, trainable(family))

    def gradient(key: PRNGKeyArray) -> PyTree:
        draws = objective.draw(key, target, family)
        inner = objective.prepare(state, draws, target, family, step)
        return jax.grad(
            lambda p: objective.loss(eqx.combine(p, frozen), inner, draws, target, step)[0]
        )(params)

    def half_squared_distance(pair: PRNGKeyArray) -> Scalar:
        gradients = jax.tree.leaves(jax.vmap(gradient)(pair))
        return 0.5 * jnp.sum(jnp.stack([jnp.sum((part[0] - part[1]) ** 2) for part in gradients]))

    return lax.map(half_squared_distance, keys)
