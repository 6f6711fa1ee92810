"""Plain numbers and lists among the arguments of a model, as arrays wherever the model allows it.

A program depends on the values of plain numbers, and only on the shapes of arrays. So a model whose
plain floats are arrays compiles nothing for new ones.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._core.checks import holds_numbers
from ._plates import Sites

Density = TypeVar("Density", bound=eqx.Module)

_TOLERANCE = 1e-4
_MOST_TRIED = 8
"""Arguments tried one by one, if not all of them can be arrays."""


def without_partial(model: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """The model and all of its arguments. A second `functools.partial` would be another model."""
    if not isinstance(model, functools.partial):
        return model, args, kwargs
    return without_partial(model.func, (*model.args, *args), model.keywords | kwargs)


def with_plain_integers(tree: PyTree) -> PyTree:
    """NumPy's integers and truth values as Python's: a size is often the maximum of an array."""
    is_plain = lambda leaf: isinstance(leaf, np.integer | np.bool_)  # noqa: E731
    return jax.tree.map(lambda leaf: leaf.item() if is_plain(leaf) else leaf, tree)


def with_numbers_as_arrays(
    arguments: PyTree, density_of: Callable[[PyTree], Density], point: PyTree, sites: Any
) -> PyTree:
    """The arguments with arrays for floats and lists of numbers, where the model stays the same.

    Integers stay as they are, since most of them are sizes.

    **Arguments:**

    - `density_of`: the density of a model with these arguments, a function of parameters.
    - `point`: parameters at which it can be differentiated.
    - `sites`: the sites of the model with given arguments, as a function of these.
    """
    leaves, structure = jax.tree.flatten(arguments, is_leaf=_is_list_of_numbers)
    numbers = [i for i, leaf in enumerate(leaves) if _is_number(leaf) or _is_list_of_numbers(leaf)]
    if not numbers:
        return arguments
    before = sites(arguments)

    def converted(chosen: list[int]) -> PyTree:
        found = [jnp.asarray(x) if i in chosen else x for i, x in enumerate(leaves)]
        return jax.tree.unflatten(structure, found)

    def is_same(chosen: list[int]) -> bool:
        return _is_same(before, converted(chosen), density_of, point, sites)

    return converted(numbers if is_same(numbers) else _greedy(numbers, is_same))


def _greedy(numbers: list[int], is_same: Callable[[list[int]], bool]) -> list[int]:
    """As many of the numbers as the model allows, one after another."""
    chosen: list[int] = []
    if 1 < len(numbers) <= _MOST_TRIED:
        for one in numbers:
            chosen = [*chosen, one] if is_same([*chosen, one]) else chosen
    return chosen


def _is_same(
    before: Sites, arguments: PyTree, density_of: Callable, point: PyTree, sites: Callable
) -> bool:
    """Whether the model can be traced with these arguments, and has the same sites.

    It cannot if it branches on a number, for example. Its sites differ if it takes the difference
    of two large numbers, which Python does in double precision.
    """
    score = lambda density, point: jax.grad(density)(point)  # noqa: E731
    try:
        eqx.filter_eval_shape(score, density_of(arguments), point)
        after = sites(arguments)
    except Exception:  # a model may raise anything for arguments that it does not expect
        return False
    return before.keys() == after.keys() and all(
        _agree(_numbers_of(before[name]), _numbers_of(after[name])) for name in before
    )


def _numbers_of(site: dict[str, Any]) -> PyTree:
    """What a site is made of: its value, and the numbers of its distribution."""
    fn = site["fn"] if site["type"] == "sample" else None
    return site["value"], fn


def _agree(one: PyTree, other: PyTree) -> bool:
    ours, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(ours) == len(theirs) and all(map(_is_close, ours, theirs))


def _is_close(one: Any, other: Any) -> bool:
    if jnp.shape(one) != jnp.shape(other) or jnp.result_type(one) != jnp.result_type(other):
        return False
    a, b = (np.asarray(value, np.float64) for value in (one, other))
    size = np.max(np.abs(a), where=np.isfinite(a), initial=0.0)
    return np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, float | np.floating)


def _is_list_of_numbers(leaf: Any) -> bool:
    """Whether it is a list, or a list of lists, that makes an array of numbers."""
    if not isinstance(leaf, list) or not leaf:
        return False
    plain = all(isinstance(x, int | float | np.number) and not isinstance(x, bool) for x in leaf)
    try:
        return plain or (
            all(map(_is_list_of_numbers, leaf)) and holds_numbers(np.asarray(leaf).dtype)
        )
    except ValueError:  # rows of different lengths
        return False
