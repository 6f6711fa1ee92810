"""How a vector is made of named parts, each with its shape and support."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._core.checks import describe
from .supports import Support

Layout = tuple[tuple[str, tuple[int, ...]], ...]


def split(x: Float[Array, "*n d"], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """The parts of these shapes that a vector, or each row of points, is made of."""
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    parts = jnp.split(x, ends[:-1], axis=-1)
    return [part.reshape(*x.shape[:-1], *shape) for part, shape in zip(parts, shapes, strict=True)]


def named_layout(names: Sequence[str] | None, dim: int) -> Layout:
    """A name a coordinate, or "x" for all."""
    if names is None:
        return (("x", (dim,)),)
    given = list(map(str, names)) if isinstance(names, Sequence) and not isinstance(names, str) else []
    if len(given) != dim or len(set(given)) != dim:
        raise ValueError(f"names must be {dim} different names, got {describe(names)}")
    return tuple((name, ()) for name in given)


def named_leaves(example: PyTree) -> tuple[list[str], list[Array], Any]:
    """Names of a pytree's parts, their values, and its structure. An array alone is "x"."""
    paths, treedef = jax.tree_util.tree_flatten_with_path(example)
    if not paths:
        raise ValueError("example must hold at least one array, got an empty pytree")
    for path, leaf in paths:
        dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"example{jax.tree_util.keystr(path)} must be floating, got {dtype}")
    names = [jax.tree_util.keystr(path, simple=True, separator=".") or "x" for path, _ in paths]
    if len(set(names)) < len(names):
        raise ValueError(f"example must have different names for its parts, got {names}")
    return names, [jnp.asarray(leaf) for _, leaf in paths], treedef


def supports_of(names: list[str], supports: dict[str, Support]) -> tuple[Support, ...]:
    """One a name: all numbers unless given."""
    if not isinstance(supports, dict):
        raise ValueError(f"supports must be a dict by name, of {names}, got {describe(supports)}")
    for name, support in supports.items():
        if name not in names:
            raise ValueError(f"supports must name parts of example, {names}, got {name!r}")
        if not isinstance(support, Support):
            raise ValueError(f"supports[{name!r}] must be one of ksivi.supports, got {describe(support)}")
    return tuple(supports.get(name, Support("real")) for name in names)


def unconstrained(names: list[str], values: list[Array], supports: tuple[Support, ...]) -> list[Array]:
    """The u of every value."""
    found = []
    for name, value, support in zip(names, values, supports, strict=True):
        shape, least = value.shape, support.least_ndim
        if value.ndim < least:
            raise ValueError(f"example must have at least {least} axes for {name}, a {support}, got shape {shape}")
        u = support.inverse(value)
        back = support(u)
        # There and back again: not every map gives NaN for a value that it cannot reach. Bounds may have more axes.
        if back.shape != shape:
            raise ValueError(f"the bounds of {name}, {support}, must broadcast to its shape {shape}, got {back.shape}")
        if not (jnp.isfinite(u).all() and jnp.allclose(back, value, rtol=1e-3, atol=1e-4)):
            raise ValueError(f"example must be inside its supports, got {name} = {value}, which is {support}")
        found.append(u)
    return found
