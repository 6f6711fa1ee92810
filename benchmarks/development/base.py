"""What the development set is made of: a target, and draws of the truth."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ksivi import NUTS, Posterior, Target, reference_draws

NUM_TRUTH = 20_000
_TRUTH_SEED = 7


@dataclasses.dataclass(frozen=True)
class Case:
    """A posterior to be approximated.

    **Attributes:**

    - `target`: what a method is given.
    - `truth`: makes draws of the truth, on the scale that `view` gives.
    - `columns`: the numbers that the columns of `truth` are, as `fit.table()` names them, where `view` has a scale of
      its own.
    - `held_out`: whether it was written once `fit` was final, so that nothing was chosen on it.
    - `view`: key, posterior and n to draws on that scale; the target's own, unconstrained scale unless given.
    """

    name: str
    target: Target
    truth: Callable[[], Float[np.ndarray, "n d"]]
    view: Callable[[Array, Posterior, int], Float[np.ndarray, "n d"]] = lambda key, posterior, n: (
        np.asarray(posterior.sample(key, n))
    )
    held_out: bool = False
    columns: tuple[str, ...] = ()


def exact(name: str, log_density: Callable, dim: int, draw: Callable[[Array], Array]) -> Case:
    """A density with an exact sampler of one draw from one key."""
    keys = lambda: jax.random.split(jax.random.key(_TRUTH_SEED), NUM_TRUTH)  # noqa: E731
    return Case(name, Target(log_density, dim), lambda: np.asarray(jax.jit(jax.vmap(draw))(keys())))


def by_nuts(
    name: str,
    target: Target,
    easy: Target | None = None,
    back: Callable | None = None,
    *,
    careful: bool = False,
) -> Case:
    """A target whose truth NUTS knows: its own draws, or those of an easier form of the model, mapped back.

    **Arguments:**

    - `easy`: the same posterior in coordinates that NUTS can sample.
    - `back`: those coordinates, one draw by name, to the target's, one draw by name.
    """

    # Small steps, since funnels remain even in easy coordinates.
    method = NUTS(num_warmup=2_000, num_draws=2_500, target_acceptance=0.99) if careful else None

    def truth() -> np.ndarray:
        draws = reference_draws(
            jax.random.key(_TRUTH_SEED), target if easy is None else easy, method=method
        )
        if easy is None or back is None:
            return np.asarray(draws)
        return np.asarray(jax.vmap(lambda x: flatten(target, back(unflatten(easy, x))))(draws))

    return Case(name, target, truth)


def unflatten(target: Target, x: Float[Array, " d"]) -> dict[str, Array]:
    """A point by name, unconstrained."""
    sizes = [int(np.prod(shape)) for _, shape in target.layout]
    parts = jnp.split(x, np.cumsum(sizes)[:-1])
    return {
        name: part.reshape(shape) for (name, shape), part in zip(target.layout, parts, strict=True)
    }


def flatten(target: Target, sites: dict[str, Array]) -> Float[Array, " d"]:
    return jnp.concatenate([jnp.ravel(sites[name]) for name, _ in target.layout])
