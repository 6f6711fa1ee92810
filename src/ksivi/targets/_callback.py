"""Targets from functions on the host: compiled models, simulators, any NumPy code."""

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

from .._core.checks import (
    as_count,
    as_flag,
    attributing_errors_to,
    describe,
    holds_numbers,
    require_callable,
)
from ._density import AbstractDensity, Point
from ._probe import as_test_point
from ._pytree import named_layout
from ._target import Target

Points = Float[np.ndarray, "n d"]


class CallbackDensity(AbstractDensity):
    """A log density and its gradient on the host, with Hessian-vector products if they are known.

    Both functions take points as rows. A batch of points, with any number of batch axes, is passed
    in one call.
    """

    value_and_gradient: Callable[[Points], tuple[Any, Any]] = eqx.field(static=True)
    hessian_product: Callable[[Points, Points], Any] | None = eqx.field(static=True)

    @property
    def given_as(self) -> str:
        return _name_of(self.value_and_gradient)

    def explain(self, x):
        return (
            "if it is finite elsewhere, give such a point as test_point=; if a parameter is positive "
            "or bounded, write the log density on an unconstrained scale, with the Jacobian"
        )

    def value(self, x):
        return _value(self, x)

    def value_and_score(self, x):
        return _both(self, x)

    def score(self, x):
        return _both(self, x)[1]

    @property
    def calls_python(self):
        return True

    def host_values(self, points):
        return [np.asarray(one, np.float64) for one in self.value_and_gradient(points)]


def from_callback(
    value_and_gradient: Callable,
    dim: int,
    *,
    hessian_product: Callable | None = None,
    batched: bool = False,
    names: Sequence[str] | None = None,
    test_point: Float[Array, " d"] | None = None,
) -> Target:
    r"""A target whose log density is computed on the host, with NumPy arrays in double precision.

    `fit` and SIVI need values and gradients. KSIVI differentiates the score, so it needs
    Hessian-vector products as well. Each step waits for the host, so prefer JAX if you can. The
    functions must not call JAX: it waits for them. Only reverse mode, `jax.grad`, is supported.

    **Arguments:**

    - `value_and_gradient`: x ↦ log p(x), ∇ log p(x) for one point. If it raises `RuntimeError` or
        `ArithmeticError`, as Stan does to reject a point, p(x) is 0 there; at the test point the
        error is raised.
    - `hessian_product`: x, v ↦ ∇² log p(x) v for one point.
    - `batched`: both functions take points as rows instead, (n, dim) ↦ (n,) and (n, dim). They
        must return −∞ themselves where p(x) is 0.

    A Stan model compiled by BridgeStan is on the unconstrained scale and includes the Jacobian:

        model = bridgestan.StanModel("model.stan", data="data.json")
        target = ksivi.from_callback(
            model.log_density_gradient,
            model.param_unc_num(),
            hessian_product=lambda x, v: model.log_density_hessian_vector_product(x, v)[1],
            names=model.param_unc_names(),
        )

    ```python
    value_and_gradient = lambda x: (-0.5 * x @ x, -x)
    target = ksivi.from_callback(value_and_gradient, dim=2, hessian_product=lambda x, v: -v)
    ```
    """
    dim = as_count(dim, "dim")
    require_callable(value_and_gradient, "value_and_gradient")
    if hessian_product is not None:
        require_callable(hessian_product, "hessian_product")
    point = as_test_point(test_point, dim)
    density = CallbackDensity(value_and_gradient, hessian_product)
    batched = as_flag(batched, "batched")
    _try(
        density if batched else _one_by_one(density, may_reject=False),
        np.asarray(point, np.float64),
    )
    density = density if batched else _one_by_one(density, may_reject=True)
    return Target.from_density(density, dim, named_layout(names, dim), point)


def _try(density: CallbackDensity, x: Float[np.ndarray, " d"]) -> None:
    """Calls both functions before JAX does: its report of an error on the host is long."""
    value, point = jax.ShapeDtypeStruct((), np.float64), jax.ShapeDtypeStruct(x.shape, np.float64)
    with attributing_errors_to(density.given_as, "at the test point"):
        _call(density.value_and_gradient, "value_and_gradient", (value, point), x[None])
    if density.hessian_product is not None:
        name = _name_of(density.hessian_product, "hessian_product")
        with attributing_errors_to(name, "at the test point"):
            _call(density.hessian_product, "hessian_product", point, x[None], np.ones_like(x)[None])


def _one_by_one(density: CallbackDensity, may_reject: bool) -> CallbackDensity:
    """The density with functions of points as rows, made from functions of one point."""
    product = density.hessian_product
    of_rows = None if product is None else _OneByOne(product, may_reject)
    return CallbackDensity(_OneByOne(density.value_and_gradient, may_reject), of_rows)


@dataclasses.dataclass(frozen=True)
class _OneByOne:
    """A function of points as rows, made from a function of one point.

    Two of them with the same function are equal, so that nothing is compiled again.
    """

    function: Callable
    may_reject: bool

    def __call__(self, *rows: Points) -> Any:
        results = [self._at(*points) for points in zip(*rows, strict=True)]
        if isinstance(results[0], tuple | list):
            return tuple(
                np.stack([np.asarray(one) for one in part]) for part in zip(*results, strict=True)
            )
        return np.stack([np.asarray(one) for one in results])

    def _at(self, x: Point, *v: Point) -> Any:
        try:
            return self.function(x, *v)
        except (RuntimeError, ArithmeticError, np.linalg.LinAlgError):
            if not self.may_reject:
                raise
            nowhere = np.full_like(x, np.nan)
            return nowhere if v else (-np.inf, nowhere)


def _name_of(function: Callable, default: str = "value_and_gradient") -> str:
    """The argument that the user gave: `from_torch` derives both functions from another one."""
    return getattr(function, "given_as", default)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(density: CallbackDensity, x: Point) -> Array:
    return _both(density, x)[0]


@_value.defjvp
def _value_jvp(density, primals, tangents):
    value, score = _both(density, *primals)
    return value, jnp.sum(score * tangents[0])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _both(density: CallbackDensity, x: Point) -> tuple[Array, Point]:
    """log p(x) and its score, in one call to the host."""
    like = (jax.ShapeDtypeStruct((), x.dtype), x)
    return _on_host(density.value_and_gradient, "value_and_gradient", like, x)


def _both_forward(density, x):
    value, score = _both(density, x)
    return (value, score), (x, score)


def _both_backward(density, residuals, cotangents):
    (x, score), (of_value, of_score) = residuals, cotangents
    if density.hessian_product is None:
        raise ValueError(
            "hessian_product must be given for an objective that differentiates the score, such as "
            "KSIVI; fit and SIVI do not need it"
        )
    # The Hessian is symmetric, so its product is also the transposed product.
    return (
        of_value * score + _on_host(density.hessian_product, "hessian_product", x, x, of_score),
    )


_both.defvjp(_both_forward, _both_backward)


def _on_host(function: Callable, name: str, like: Any, *points: Point) -> Any:
    """The function at all points of a batch, with the shapes and dtypes of `like`."""
    like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), like)
    call = functools.partial(_call, function, name, like)
    return jax.pure_callback(call, like, *points, vmap_method="broadcast_all")


def _call(function: Callable, name: str, like: Any, *arrays: Any) -> Any:
    # Convert to NumPy first: JAX must not compute while it waits for this call.
    points = [np.array(array, np.float64) for array in arrays]
    batch = points[0].shape[:-1]
    results = function(*(array.reshape(-1, array.shape[-1]) for array in points))
    leaves, structure = jax.tree.flatten(like)
    found = [np.asarray(one) for one in (results if isinstance(results, tuple) else (results,))]
    if not all(holds_numbers(one.dtype) for one in found):
        raise ValueError(f"{name} must return real numbers, got {', '.join(map(describe, found))}")
    expected = [(math.prod(batch), *leaf.shape) for leaf in leaves]
    if [one.shape for one in found] != expected:
        raise ValueError(_wrong_shapes(name, function, expected, [one.shape for one in found]))
    shaped = [one.reshape((*batch, *leaf.shape)) for one, leaf in zip(found, leaves, strict=True)]
    with np.errstate(over="ignore"):  # values beyond JAX's precision become infinite
        cast = [one.astype(leaf.dtype) for one, leaf in zip(shaped, leaves, strict=True)]
    return jax.tree.unflatten(structure, cast)


def _wrong_shapes(name: str, function: Callable, expected: list, found: list) -> str:
    where = f"for points as the rows of x, of shape {expected[-1]}"
    if isinstance(function, _OneByOne):  # the user's function has no axis for points
        where = f"for one point, of shape {expected[-1][1:]}"
        expected, found = ([shape[1:] for shape in shapes] for shapes in (expected, found))
    texts = [" and ".join(map(str, shapes)) for shapes in (expected, found)]
    return f"{name} must return arrays of shape {texts[0]} {where}, got {texts[1]}"
