"""What identifies arrays and programs: their text and the contents of every array that they use."""

import functools
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


class Digest(Protocol):
    """A hash from `hashlib` to which bytes are added."""

    def update(self, content: Any, /) -> None: ...


class Program(NamedTuple):
    """A function's program.

    **Attributes:**

    - `text`: the same in every process. It contains numbers, but no arrays.
    - `arrays`: the array leaves of the function's first argument.
    - `constants`: the arrays that the function and its inner functions close over.
    """

    text: str
    arrays: list[Any]
    constants: list[Any]


def program_of(function: Callable, tree: PyTree, *examples: Any) -> Program:
    """The program of function(tree, *examples). It is traced, but not compiled."""
    arrays, static = eqx.partition(tree, eqx.is_array)
    traced = jax.make_jaxpr(lambda a, *x: function(eqx.combine(a, static), *x))(arrays, *examples)
    # On a terminal JAX would colour the text.
    text = without_addresses(traced.jaxpr.pretty_print(use_color=False))
    return Program(text, jax.tree.leaves(arrays), _constants(traced))


def without_addresses(text: str) -> str:
    """A text without addresses of objects and folders of code, which differ between processes."""
    return re.sub(r' at 0x[0-9a-f]+|, file "[^"]*"', "", text)


def add_array(digest: Digest, array: Any) -> None:
    """Adds the dtype, the shape and the whole contents of an array. Keys count as their data."""
    plain = as_plain(array)
    digest.update(f"{plain.dtype.str}{plain.shape}".encode())
    digest.update(contents(plain))


def as_plain(array: Any) -> np.ndarray:
    """The array on the host. A typed key becomes its data."""
    is_key = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array)


def contents(array: np.ndarray) -> memoryview:
    """The bytes of an array in C's order. They are copied only if they lie in another order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def arrays_within(value: Any, above: tuple[int, ...] = ()) -> Iterator[Any]:
    """The arrays that a function reaches: closure, defaults, bound object and named globals."""
    if isinstance(value, jax.Array | np.ndarray):
        yield value
    elif id(value) not in above:
        for part in _parts(value):
            yield from arrays_within(part, (*above, id(value)))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, types.FunctionType):
        named = [value.__globals__.get(name) for name in value.__code__.co_names]
        arrays = [one for one in named if isinstance(one, jax.Array | np.ndarray)]
        return closure_of(value), value.__defaults__, value.__kwdefaults__, arrays
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, eqx.Module):
        return jax.tree.leaves(value)
    return (getattr(value, "__wrapped__", None),)  # what `jax.jit` returns has one


def closure_of(function: types.FunctionType) -> tuple[Any, ...]:
    """The values that a function closes over."""
    return tuple(_contents(cell) for cell in function.__closure__ or ())


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None


def _constants(program: Any) -> list[Any]:
    found = list(getattr(program, "consts", ()))
    for equation in getattr(program, "jaxpr", program).eqns:
        is_program = lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")  # noqa: E731
        for inner in filter(is_program, jax.tree.leaves(equation.params, is_leaf=is_program)):
            found += _constants(inner)
    return found
