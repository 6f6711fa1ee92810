"""Where the mass may be: L-BFGS from many starts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._compile import one_shot
from ..targets import Target

_NARROW, _WIDE = 0.2, 2.0


class Found(NamedTuple):
    """The best point of each path, its log density, and a point early on the path.

    Modes of hierarchical models lie at their edge, with no mass around them; on the way there is some.
    """

    points: Float[Array, "m d"]
    log_densities: Float[Array, " m"]
    early: Float[Array, "m d"]


@one_shot
def search(key: PRNGKeyArray, target: Target, num_starts: int, num_steps: int = 300, num_early: int = 8) -> Found:
    """L-BFGS on −log p from normal starts of several widths. Paths that leave the finite stop there."""
    widths = jnp.linspace(_NARROW, _WIDE, num_starts)
    starts = widths[:, None] * jax.random.normal(key, (num_starts, target.dim))
    return jax.vmap(lambda x: _descend(target, x, num_steps, num_early))(starts)


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
