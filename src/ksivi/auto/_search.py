"""Where the mass may be: descents from many starts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.compile import one_shot
from ..targets import Target

_NARROW, _WIDE = 0.2, 2.0
_HALVINGS, _FIRST_STEP, _LEAST_STEP, _MOST_STEP = 10, 1e-2, 1e-8, 1e6


class Found(NamedTuple):
    """The best point of each path, its log density, and a point early on the path.

    Modes of hierarchical models lie at their edge, with no mass around them; on the way there is some.
    """

    points: Float[Array, "m d"]
    log_densities: Float[Array, " m"]
    early: Float[Array, "m d"]


def first_starts(key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "m d"]:
    """Normal, of several widths around the origin: parameters on an unconstrained scale are seldom large."""
    return jnp.linspace(_NARROW, _WIDE, num)[:, None] * jax.random.normal(key, (num, dim))


@one_shot
def search(
    target: Target, starts: Float[Array, "m d"], num_signs: int = 100, num_steps: int = 300, num_early: int = 8
) -> Found:
    """L-BFGS on −log p from every start, and again after Rprop, of which the better end counts.

    Rprop goes by the signs of the gradient, with a step for each coordinate: scales that differ by any factor, and
    walls so steep that no line search gets off them, are nothing to it. L-BFGS knows correlations. Paths that leave the
    finite stop there.
    """
    by_signs = jax.vmap(lambda x: _by_signs(target, _where_finite(target, x), num_signs))(starts)
    paths = jax.vmap(lambda x: _descend(target, x, num_steps, num_early))(jnp.concatenate([by_signs, starts]))
    after, alone = (Found(*parts) for parts in zip(*(jnp.split(part, 2) for part in paths), strict=True))
    is_better = after.log_densities >= alone.log_densities
    points = jnp.where(is_better[:, None], after.points, alone.points)
    return Found(points, jnp.maximum(after.log_densities, alone.log_densities), alone.early)


def _where_finite(target: Target, start: Float[Array, " d"]) -> Float[Array, " d"]:
    """The start, or the first of its halvings towards the origin where the density is finite."""
    shares = jnp.append(0.5 ** jnp.arange(_HALVINGS), 0).astype(start.dtype)
    points = shares[:, None] * start[None]
    return points[jnp.argmax(jnp.isfinite(jax.vmap(target.log_density)(points)))]


def _by_signs(target: Target, start: Float[Array, " d"], num_steps: int) -> Float[Array, " d"]:
    """The best point on a path of Rprop; from where the density is not finite it goes back there, with half steps."""
    optimizer = optax.scale_by_rprop(_FIRST_STEP, min_step_size=_LEAST_STEP, max_step_size=_MOST_STEP)

    def step(carry, _):
        x, state, best, lowest = carry
        value, gradient = jax.value_and_grad(lambda x: -target.log_density(x))(x)
        better = value < lowest
        best, lowest = jnp.where(better, x, best), jnp.where(better, value, lowest)
        fine = jnp.isfinite(value)
        updates, state = optimizer.update(jnp.where(jnp.isfinite(gradient), gradient, 0), state, x)
        state = state._replace(step_sizes=jnp.where(fine, 1.0, 0.5).astype(x.dtype) * state.step_sizes)
        return (jnp.where(fine, x - updates, best), state, best, lowest), None

    first = (start, optimizer.init(start), start, jnp.asarray(jnp.inf, start.dtype))
    (_, _, best, _), _ = lax.scan(step, first, None, length=num_steps)
    return best


def _descend(target: Target, start: Float[Array, " d"], num_steps: int, num_early: int) -> Found:
    loss = lambda x: -target.log_density(x)  # noqa: E731
    optimizer = optax.lbfgs()

    def step(carry, i):
        x, state, best, lowest, early = carry
        value, gradient = jax.value_and_grad(loss)(x)
        updates, new_state = optimizer.update(gradient, state, x, value=value, grad=gradient, value_fn=loss)
        better = jnp.isfinite(value) & (value < lowest)
        best, lowest = jnp.where(better, x, best), jnp.where(better, value, lowest)
        new_x = x + updates
        fine = jnp.isfinite(value) & jnp.all(jnp.isfinite(new_x))
        state = jax.tree.map(lambda new, old: jnp.where(fine, new, old), new_state, state)
        x = jnp.where(fine, new_x, x)
        return (x, state, best, lowest, jnp.where(i == num_early, x, early)), None

    first = (start, optimizer.init(start), start, jnp.asarray(jnp.inf, start.dtype), start)
    (_, _, best, lowest, early), _ = lax.scan(step, first, jnp.arange(num_steps))
    return Found(best, -lowest, early)
