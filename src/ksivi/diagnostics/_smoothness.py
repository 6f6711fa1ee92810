"""How smooth a network μ(z; φ) is in its parameters φ. The paper assumes that it is."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree, Scalar

from .._core.checks import as_samples
from .._core.compile import jit
from ..families import trainable

Network = Callable[[Float[Array, " k"]], Float[Array, " d"]]


def jacobian_norms(mean: Network, z: Float[Array, "n k"]) -> Float[np.ndarray, " n"]:
    r"""‖∂μ(z; φ)/∂φ‖_F at each z, where φ are the trained parameters.

    It is at least the operator norm.

    **Arguments:**

    - `mean`: a network, such as `fit.posterior.family.conditional.mean`.
    - `z`: points from the mixing distribution.

    ```python
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3, hidden=(10,))
    z = family.mixing.sample(jax.random.key(1), 50)
    ksivi.diagnostics.jacobian_norms(family.conditional.mean, z)
    ```
    """
    return np.asarray(_jacobian_norms(mean, as_samples(z, "z")))


def jacobian_lipschitz(
    mean_a: Network, mean_b: Network, z: Float[Array, "n k"]
) -> Float[np.ndarray, " n"]:
    r"""‖J(z; φ_a) − J(z; φ_b)‖_F / ‖φ_a − φ_b‖ at each z, J = ∂μ/∂φ.

    It is a lower bound of the Lipschitz constant of J in the Frobenius norm.

    **Arguments:**

    - `mean_a`, `mean_b`: the same network with two sets of parameters, such as two stages of
        training.
    - `z`: points from the mixing distribution.

    ```python
    a, b = (ksivi.families.MLP(jax.random.key(k), (3, 10, 2)) for k in range(2))
    ksivi.diagnostics.jacobian_lipschitz(a, b, jax.random.normal(jax.random.key(2), (50, 3)))
    ```
    """
    shapes = [
        [leaf.shape for leaf in jax.tree.leaves(_split(mean)[0])] for mean in (mean_a, mean_b)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"mean_a and mean_b must have parameters of the same shapes, got {shapes[0]} and {shapes[1]}"
        )
    changes, distance = _jacobian_changes(mean_a, mean_b, as_samples(z, "z"))
    if not distance > 0:
        raise ValueError("mean_a and mean_b must have different parameters, but they are equal")
    return np.asarray(changes) / float(distance)


@jit
def _jacobian_norms(mean: Network, z: Float[Array, "n k"]) -> Float[Array, " n"]:
    return lax.map(lambda one: _norm(_jacobian(mean, one)), z)


@jit
def _jacobian_changes(
    mean_a: Network, mean_b: Network, z: Float[Array, "n k"]
) -> tuple[Float[Array, " n"], Scalar]:
    change = lambda one: _norm(_minus(_jacobian(mean_a, one), _jacobian(mean_b, one)))  # noqa: E731
    return lax.map(change, z), _norm(_minus(_split(mean_a)[0], _split(mean_b)[0]))


def _jacobian(mean: Network, z: Float[Array, " k"]) -> PyTree:
    params, rest = _split(mean)
    return jax.jacrev(lambda p: eqx.combine(p, rest)(z))(params)


def _split(mean: Network) -> tuple[PyTree, PyTree]:
    return eqx.partition(mean, trainable(mean))


def _minus(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.subtract, a, b)


def _norm(tree: PyTree) -> Scalar:
    return jnp.sqrt(jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)])))
