"""Training steps of ksivi as a variational algorithm of BlackJAX."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import PRNGKeyArray, PyTree, Scalar

from .._core.checks import (
    as_count,
    as_single_key,
    attributing_errors_to,
    describe,
    require_callable,
)
from .._core.closures import as_optimizer
from ..auto import Recipe
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..targets import Target
from ..training import SingleRun, single_run


class BlackJAXState(NamedTuple):
    """The state of the algorithm.

    **Attributes:**

    - `position`: the position that it started from.
    - `run`: the parameters of the family, and the states of the optimiser and the objective.
    """

    position: PyTree
    run: SingleRun


class BlackJAXInfo(NamedTuple):
    """What a step reports.

    **Attributes:**

    - `loss`: the loss of the objective.
    - `stein_ratio`: 1 if the draws are as wide as the target, above 1 if they are too wide.
    """

    loss: Scalar
    stein_ratio: Scalar


def blackjax(
    logdensity_fn: Callable[[PyTree], Scalar],
    objective: AbstractObjective | None = None,
    family: SemiImplicit | Callable[[PRNGKeyArray], SemiImplicit] | None = None,
    *,
    optimizer: optax.GradientTransformation | None = None,
) -> Any:
    """A variational algorithm of BlackJAX: `init(position)`, `step(key, state)` and `sample`.

    Each step is a step of `ksivi.train` on the objective. `jax.jit`, `jax.vmap` and `jax.lax.scan`
    take all three functions. Nothing checks the draws: `ksivi.fit` does.

    - `init(position, rng_key=None)`: `position` is a pytree of floating arrays. The family starts
        around it. The key is for the networks of the family; the default is `jax.random.key(0)`,
        because BlackJAX's algorithms have no key here.
    - `step(rng_key, state)` returns the new state and a `BlackJAXInfo` with `loss` and
        `stein_ratio`.
    - `sample(rng_key, state, num_samples)`: a pytree with a leading axis of draws.

    **Arguments:**

    - `logdensity_fn`: the log density of a position.
    - `objective`: the loss. Default: `ksivi.Jeffreys` with the settings of `ksivi.fit`, which finds
        far, correlated and several modes more reliably than `ksivi.KSIVI()` of the paper.
    - `family`: a `ksivi.SemiImplicit` of the dimension of the position, or a function of a key that
        makes one. Default: that of `ksivi.fit`, with μ(z), σ(z) and an affine layer.
    - `optimizer`: an Optax transformation. Default: `optax.adam(1e-3)`.

    **Returns:** a `blackjax.base.VIAlgorithm`.

    ```python
    algorithm = ksivi.plugins.blackjax(lambda x: -0.5 * jnp.sum(x["a"] ** 2))
    state = algorithm.init({"a": jnp.zeros(3)})
    step = lambda state, key: algorithm.step(key, state)
    state, info = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 100))
    draws = algorithm.sample(jax.random.key(2), state, 1_000)["a"]
    ```
    """
    try:
        from blackjax.base import VIAlgorithm  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            "ksivi.plugins.blackjax needs BlackJAX: pip install 'ksivi[mcmc]'"
        ) from error
    require_callable(logdensity_fn, "logdensity_fn")
    _require_parts(objective, family)
    used = as_optimizer(optimizer, "optimizer", optax.adam(1e-3)).value

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> BlackJAXState:
        key = jax.random.key(0) if rng_key is None else as_single_key(rng_key, "rng_key")
        position = _as_position(position)
        with attributing_errors_to("logdensity_fn", "at position"):
            target = Target.from_pytree(logdensity_fn, position)
        point = ravel_pytree(position)[0]
        around = target.whitened(point, jnp.ones_like(point))
        parts = _parts(around.dim, objective, family)
        return BlackJAXState(position, single_run(key, around, *parts, used))

    def step(rng_key: PRNGKeyArray, state: BlackJAXState) -> tuple[BlackJAXState, BlackJAXInfo]:
        run, records = state.run.step(as_single_key(rng_key, "rng_key"))
        info = BlackJAXInfo(records["loss"], records["stein_ratio"])
        return BlackJAXState(state.position, run), info

    def sample(rng_key: PRNGKeyArray, state: BlackJAXState, num_samples: int = 1) -> PyTree:
        key, n = as_single_key(rng_key, "rng_key"), as_count(num_samples, "num_samples")
        return jax.vmap(ravel_pytree(state.position)[1])(state.run.sample(key, n))

    return VIAlgorithm(init, step, sample)


def _parts(dim: int, objective: Any, family: Any) -> tuple[Any, Any]:
    """The family and the objective. What is not given is that of `ksivi.fit`."""
    recipe = Recipe()
    start = (lambda key: recipe.family(key, dim, True)) if family is None else family
    return start, recipe.objective(dim) if objective is None else objective


def _require_parts(objective: Any, family: Any) -> None:
    if not isinstance(objective, AbstractObjective | None):
        raise ValueError(
            "objective must be one of ksivi's objectives, such as ksivi.KSIVI(), got "
            f"{describe(objective)}"
        )
    if not (family is None or isinstance(family, SemiImplicit) or callable(family)):
        raise ValueError(
            "family must be a ksivi.SemiImplicit, or a function of a key that returns one, got "
            f"{describe(family)}"
        )


def _as_position(position: PyTree) -> PyTree:
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(position) if _is_floating(leaf)]
    if not leaves or len(leaves) < len(jax.tree.leaves(position)):
        raise ValueError(
            "position must be floating numbers, or a dict or another pytree of arrays of them, got "
            f"{describe(position)}"
        )
    return jax.tree.unflatten(jax.tree.structure(position), leaves)


def _is_floating(leaf: Any) -> bool:
    if isinstance(leaf, float):
        return True
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.floating))
