"""Searches for modes from many starts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.compile import one_shot
from ..targets import Target

_NARROW, _WIDE = 0.2, 2.0
_HALVINGS, _FIRST_STEP, _MIN_STEP, _MAX_STEP = 10, 1e-2, 1e-8, 1e6


class Found(NamedTuple):
    """The best point of each path, its log density, and an early point of the path.

    The mode of a hierarchical model can lie at the edge, with no mass around it. Early points of a
    path can be nearer to the mass.
    """

    points: Float[Array, "m d"]
    log_densities: Float[Array, " m"]
    early: Float[Array, "m d"]


def first_starts(key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "m d"]:
    """Normal draws of several widths around the origin.

    Parameters on an unconstrained scale are rarely large.
    """
    return jnp.linspace(_NARROW, _WIDE, num)[:, None] * jax.random.normal(key, (num, dim))


@one_shot
def search(
    target: Target,
    starts: Float[Array, "m d"],
    num_signs: int = 100,
    num_steps: int = 300,
    num_early: int = 8,
) -> Found:
    """Runs L-BFGS on −log p from every start and after Rprop, and keeps the better of the two ends.

    Rprop uses only the signs of the gradient, with one step size per coordinate. So it handles
    scales that differ by any factor, and walls too steep for a line search. L-BFGS handles
    correlations. A path stops where log p is not finite.
    """
    after_signs = jax.vmap(lambda x: _rprop(target, _where_finite(target, x), num_signs))(starts)
    paths = jax.vmap(lambda x: _lbfgs(target, x, num_steps, num_early))(
        jnp.concatenate([after_signs, starts])
    )
    after, alone = (
        Found(*parts) for parts in zip(*(jnp.split(part, 2) for part in paths), strict=True)
    )
    is_better = after.log_densities >= alone.log_densities
    points = jnp.where(is_better[:, None], after.points, alone.points)
    return Found(points, jnp.maximum(after.log_densities, alone.log_densities), alone.early)


def _where_finite(target: Target, start: Float[Array, " d"]) -> Float[Array, " d"]:
    """The start, or the first of its halvings towards the origin at which log p is finite."""
    shares = jnp.append(0.5 ** jnp.arange(_HALVINGS), 0).astype(start.dtype)
    points = shares[:, None] * start[None]
    return points[jnp.argmax(jnp.isfinite(jax.vmap(target.log_density)(points)))]


def _rprop(target: Target, start: Float[Array, " d"], num_steps: int) -> Float[Array, " d"]:
    """The best point of an Rprop path.

    Where log p is not finite, the path returns to the best point and halves the steps.
    """
    optimizer = optax.scale_by_rprop(_FIRST_STEP, min_step_size=_MIN_STEP, max_step_size=_MAX_STEP)

    def step(carry, _):
        x, state, best, lowest = carry
        value, gradient = jax.value_and_grad(lambda x: -target.log_density(x))(x)
        better = value < lowest
        best, lowest = jnp.where(better, x, best), jnp.where(better, value, lowest)
        is_finite = jnp.isfinite(value)
        updates, state = optimizer.update(jnp.where(jnp.isfinite(gradient), gradient, 0), state, x)
        state = state._replace(
            step_sizes=jnp.where(is_finite, 1.0, 0.5).astype(x.dtype) * state.step_sizes
        )
        return (jnp.where(is_finite, x - updates, best), state, best, lowest), None

    first = (start, optimizer.init(start), start, jnp.asarray(jnp.inf, start.dtype))
    (_, _, best, _), _ = lax.scan(step, first, None, length=num_steps)
    return best


def _lbfgs(target: Target, start: Float[Array, " d"], num_steps: int, num_early: int) -> Found:
    loss = lambda x: -target.log_density(x)  # noqa: E731
    optimizer = optax.lbfgs()

    def step(carry, i):
        x, state, best, lowest, early = carry
        value, gradient = jax.value_and_grad(loss)(x)
        updates, new_state = optimizer.update(
            gradient, state, x, value=value, grad=gradient, value_fn=loss
        )
        better = jnp.isfinite(value) & (value < lowest)
        best, lowest = jnp.where(better, x, best), jnp.where(better, value, lowest)
        new_x = x + updates
        is_finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(new_x))
        state = jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), new_state, state)
        x = jnp.where(is_finite, new_x, x)
        return (x, state, best, lowest, jnp.where(i == num_early, x, early)), None

    first = (start, optimizer.init(start), start, jnp.asarray(jnp.inf, start.dtype), start)
    (_, _, best, lowest, early), _ = lax.scan(step, first, jnp.arange(num_steps))
    return Found(best, -lowest, early)
