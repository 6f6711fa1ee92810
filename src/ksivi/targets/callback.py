"""The door for log densities that live on the host: compiled models, simulators, anything that NumPy can call."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import as_count, require_callable
from .density import AbstractDensity, Point
from .layout import named_layout
from .target import Target

Points = Float[np.ndarray, "n d"]


class CallbackDensity(AbstractDensity):
    """A log density and its gradient on the host, and products with its Hessian where they are known.

    Both functions take points as rows. Whatever JAX has batched, along any number of axes, comes to them in one call.
    """

    value_and_gradient: Callable[[Points], tuple[Any, Any]] = eqx.field(static=True)
    hessian_product: Callable[[Points, Points], Any] | None = eqx.field(static=True)

    def value(self, x):
        return _value(self, x)

    def value_and_score(self, x):
        value = jax.ShapeDtypeStruct((), x.dtype)
        return _on_host(self.value_and_gradient, "value_and_gradient", (value, x), x)

    def score(self, x):
        return _score(self, x)


def from_callback(
    value_and_gradient: Callable,
    dim: int,
    *,
    hessian_product: Callable | None = None,
    batched: bool = False,
    names: Sequence[str] | None = None,
    test_point: Float[Array, " d"] | None = None,
) -> Target:
    r"""A target whose log density is computed on the host, in double precision NumPy arrays.

    `fit` and SIVI need values and gradients. KSIVI differentiates the score, and so needs products with the Hessian
    as well. A step waits for the host: prefer JAX where there is a choice.

    **Arguments:**

    - `value_and_gradient`: x ↦ log p(x), ∇ log p(x), of one point; or, `batched`, of points as rows, (n, dim) ↦ (n,)
        and (n, dim).
    - `hessian_product`: x, v ↦ ∇² log p(x) v, of one point or of rows likewise.

    A Stan model, compiled by BridgeStan, is on the unconstrained scale, with the Jacobian:

        model = bridgestan.StanModel("model.stan", data="data.json")
        target = ksivi.from_callback(
            model.log_density_gradient,
            model.param_unc_num(),
            hessian_product=lambda x, v: model.log_density_hessian_vector_product(x, v)[1],
            names=model.param_unc_names(),
        )

    ```python
    target = ksivi.from_callback(lambda x: (-0.5 * x @ x, -x), dim=2, hessian_product=lambda x, v: -v)
    ```
    """
    dim = as_count(dim, "dim")
    require_callable(value_and_gradient, "value_and_gradient")
    if hessian_product is not None:
        require_callable(hessian_product, "hessian_product")
    if not batched:
        value_and_gradient = _OneByOne(value_and_gradient)
        hessian_product = None if hessian_product is None else _OneByOne(hessian_product)
    density = CallbackDensity(value_and_gradient, hessian_product)
    _try(density, np.zeros(dim) if test_point is None else np.asarray(test_point))
    return Target.from_density(density, dim, named_layout(names, dim), test_point)


def _try(density: CallbackDensity, x: Float[np.ndarray, " d"]) -> None:
    """Before JAX does, whose report of what went wrong on the host is long."""
    value, point = jax.ShapeDtypeStruct((), np.float64), jax.ShapeDtypeStruct(x.shape, np.float64)
    _call(density.value_and_gradient, "value_and_gradient", (value, point), x[None])
    if density.hessian_product is not None:
        _call(density.hessian_product, "hessian_product", point, x[None], np.ones_like(x)[None])


@dataclasses.dataclass(frozen=True)
class _OneByOne:
    """A function of points as rows, by one of points. Two of the same function are equal: nothing is compiled again."""

    function: Callable

    def __call__(self, *rows: Points) -> Any:
        results = [self.function(*points) for points in zip(*rows, strict=True)]
        if isinstance(results[0], tuple):
            return tuple(np.stack([np.asarray(one) for one in part]) for part in zip(*results, strict=True))
        return np.stack([np.asarray(one) for one in results])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(density: CallbackDensity, x: Point) -> Array:
    return density.value_and_score(x)[0]


@_value.defjvp
def _value_jvp(density, primals, tangents):
    (x,), (tangent,) = primals, tangents
    return _value(density, x), jnp.sum(_score(density, x) * tangent)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _score(density: CallbackDensity, x: Point) -> Point:
    return density.value_and_score(x)[1]


def _score_forward(density, x):
    return density.value_and_score(x)[1], x


def _score_backward(density, x, cotangent):
    if density.hessian_product is None:
        raise ValueError(
            "hessian_product must be given for an objective that differentiates the score, such as KSIVI; "
            "fit and SIVI do without"
        )
    # The Hessian is symmetric: its product is the transposed one as well.
    return (_on_host(density.hessian_product, "hessian_product", x, x, cotangent),)


_score.defvjp(_score_forward, _score_backward)


def _on_host(function: Callable, name: str, like: Any, *points: Point) -> Any:
    """What the function gives for all points of a batch, in the shapes and dtypes of `like`."""
    like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), like)
    call = functools.partial(_call, function, name, like)
    return jax.pure_callback(call, like, *points, vmap_method="broadcast_all")


def _call(function: Callable, name: str, like: Any, *arrays: Any) -> Any:
    # NumPy before anything else: JAX must not be asked to compute while it waits for this.
    points = [np.array(array, np.float64) for array in arrays]
    batch = points[0].shape[:-1]
    results = function(*(array.reshape(-1, array.shape[-1]) for array in points))
    leaves, structure = jax.tree.flatten(like)
    found = [np.asarray(one) for one in (results if isinstance(results, tuple) else (results,))]
    wanted = [(math.prod(batch), *leaf.shape) for leaf in leaves]
    if [one.shape for one in found] != wanted:
        shapes = " and ".join(str(one.shape) for one in found)
        raise ValueError(
            f"{name} must return {' and '.join(map(str, wanted))} for points as {wanted[-1]} rows, got {shapes}"
        )
    shaped = [one.reshape((*batch, *leaf.shape)) for one, leaf in zip(found, leaves, strict=True)]
    return jax.tree.unflatten(structure, [one.astype(leaf.dtype) for one, leaf in zip(shaped, leaves, strict=True)])
