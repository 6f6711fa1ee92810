"""Densities over a pytree of parameters: named parts of a vector, with shapes and supports."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Scalar

from .._core.checks import describe
from ._density import AbstractDensity
from ._model import AbstractModel
from .supports import Support

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""The name and the shape of each part of a vector."""


class PytreeDensity(AbstractDensity):
    r"""A log density of a pytree of parameters, laid out as one vector u.

    Parameters θ(u) with supports include the Jacobian of their map:
    log p(u) = log p(θ(u)) + log |det ∂θ/∂u|.
    """

    log_density: Callable[[PyTree], Scalar]
    supports: tuple[Support, ...] | None
    treedef: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def given_as(self) -> str:
        return "log_density" if self.model is None else "the model's log density"

    def explain(self, x):
        if self.model is not None:
            return self.model.explain(jax.tree.unflatten(self.treedef, split(x, self.shapes)))
        return (
            "example is the test point, so give one where it is finite; if a parameter is positive "
            "or bounded, name its support with supports="
        )

    def value(self, x):
        parts = split(x, self.shapes)
        if self.supports is None:
            return self.log_density(jax.tree.unflatten(self.treedef, parts))
        values = [to(u) for to, u in zip(self.supports, parts, strict=True)]
        log_det = sum(to.log_det(u) for to, u in zip(self.supports, parts, strict=True))
        return self.log_density(jax.tree.unflatten(self.treedef, values)) + log_det

    def value_and_score(self, x):
        return jax.value_and_grad(self.value)(x)

    def score(self, x):
        return jax.grad(self.value)(x)

    @property
    def model(self) -> AbstractModel | None:
        return self.log_density if isinstance(self.log_density, AbstractModel) else None


def pytree_density(
    log_density: Callable[[PyTree], Scalar], example: PyTree, supports: dict[str, Support] | None
) -> tuple[PytreeDensity, Layout, Float[Array, " d"]]:
    """The density, its layout, and the unconstrained vector of the example."""
    names, leaves, treedef = _named_leaves(example)
    to = None if supports is None else _supports_of(names, supports)
    parts = leaves if to is None else _unconstrained(names, leaves, to)
    shapes = tuple(part.shape for part in parts)
    point = jnp.concatenate([jnp.ravel(part) for part in parts])
    density = PytreeDensity(log_density, to, treedef, shapes)
    return density, tuple(zip(names, shapes, strict=True)), point


def split(x: Float[Array, "*n d"], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Splits a vector, or each row of an array of points, into parts of these shapes."""
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    parts = jnp.split(x, ends[:-1], axis=-1)
    return [part.reshape(*x.shape[:-1], *shape) for part, shape in zip(parts, shapes, strict=True)]


def named_layout(names: Sequence[str] | None, dim: int) -> Layout:
    """One name per coordinate, or "x" for all of them."""
    if names is None:
        return (("x", (dim,)),)
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    given = list(map(str, names)) if is_list else []
    if len(given) != dim or len(set(given)) != dim:
        raise ValueError(f"names must be {dim} different names, got {describe(names)}")
    return tuple((name, ()) for name in given)


def _named_leaves(example: PyTree) -> tuple[list[str], list[Array], Any]:
    """The names of a pytree's leaves, their values, and the tree structure.

    A single array gets the name "x".
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(example)
    if not paths:
        raise ValueError("example must hold at least one array, got an empty pytree")
    for path, leaf in paths:
        dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(
                f"example{jax.tree_util.keystr(path)} must be floating numbers, such as 1.0, got "
                f"{describe(leaf)}"
            )
    names = [jax.tree_util.keystr(path, simple=True, separator=".") or "x" for path, _ in paths]
    if len(set(names)) < len(names):
        raise ValueError(f"example must have different names for its parts, got {names}")
    return names, [jnp.asarray(leaf) for _, leaf in paths], treedef


def _supports_of(names: list[str], supports: dict[str, Support]) -> tuple[Support, ...]:
    """One support per name: all real numbers unless given."""
    if not isinstance(supports, dict):
        raise ValueError(
            f"supports must be a dict with some of the keys {names}, got {describe(supports)}"
        )
    for name, support in supports.items():
        if name not in names:
            raise ValueError(f"supports must name parts of example, {names}, got {name!r}")
        if not isinstance(support, Support):
            raise ValueError(
                f"supports[{name!r}] must be one of ksivi.supports, such as "
                f"ksivi.supports.positive(), got {describe(support)}"
            )
    return tuple(supports.get(name, Support("real")) for name in names)


def _unconstrained(
    names: list[str], values: list[Array], supports: tuple[Support, ...]
) -> list[Array]:
    """The unconstrained u of every value."""
    found = []
    for name, value, support in zip(names, values, supports, strict=True):
        shape, least = value.shape, support.least_ndim
        if value.ndim < least:
            raise ValueError(
                f"example must be inside its supports: {name} must be {support}, with at least "
                f"{least} axes, got shape {shape}"
            )
        u = support.inverse(value)
        back = support(u)
        # Map back to check: not every map gives NaN for a value outside its support.
        if back.shape != shape:
            raise ValueError(
                f"supports[{name!r}] must have bounds that broadcast to the shape {shape} of the "
                f"example, got bounds of shape {back.shape}"
            )
        if not (jnp.isfinite(u).all() and jnp.allclose(back, value, rtol=1e-3, atol=1e-4)):
            raise ValueError(
                f"example must be inside its supports: {name} must be {support}, got {_show(value)}"
            )
        found.append(u)
    return found


def _show(value: Array) -> str:
    return " ".join(str(value).split()) if value.size <= 16 else describe(value)
