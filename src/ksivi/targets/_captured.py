"""Functions whose data come from around them: a second one on new data compiles nothing again.

`lambda x: log_likelihood(x, y)` is another function for every y, and a program is kept for one
function. So a function is taken apart, into its code and the arrays that the code reads.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._parts import Part, Unknown, part_of
from ._same_program import is_same_program

Function = TypeVar("Function", bound=Callable)


class Code:
    """A function without its arrays. It equals any other of the same code and the same values."""

    def __init__(self, part: Part, name: str):
        self.part, self.name, self._hash = part, name, hash(part.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.part.key == other.part.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Code({self.name})"


class Captured(eqx.Module):
    """A function whose arrays, captured from around it, are leaves."""

    arrays: list[Array]
    code: Code = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        return self.code.part.build(self.arrays)(*args)


def captured(function: Function, *examples: Any) -> Function | Captured:
    """The function with its arrays as leaves, or the function itself where that is not possible.

    Its program must stay the same. It would not, for example, if NumPy does a part of it in double
    precision. Plain floats become arrays too, if they can.

    **Arguments:**

    - `examples`: arguments of the function; only their shapes matter.
    """
    for with_floats in (True, False):
        found = _taken_apart(function, with_floats)
        if found is not None and is_same_program(function, found, examples):
            return found
    return function


def _taken_apart(function: Callable, with_floats: bool) -> Captured | None:
    arrays: list[Any] = []
    try:
        part = part_of(function, arrays, with_floats)
        code = Code(part, getattr(function, "__name__", "function"))
    except (Unknown, TypeError):  # what has no hash is not known either
        return None
    if not arrays or any(isinstance(array, jax.core.Tracer) for array in arrays):
        return None
    # A copy, because the user may write into an array of NumPy.
    leaves = [one if isinstance(one, jax.Array) else jnp.array(one) for one in arrays]
    return Captured(leaves, code)
