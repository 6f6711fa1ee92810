"""Whether a function computes the same with its arrays as arguments as with its arrays inside."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

_MOVES = {
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "dynamic_slice",
    "expand_dims",
    "gather",
    "reshape",
    "rev",
    "slice",
    "split",
    "squeeze",
    "stop_gradient",
    "transpose",
}
"""Operations that move numbers and do not change them: NumPy may do them as well."""
_EXACT = {"add", "sub", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "select_n"}
"""What NumPy may do as well with integers, such as indices, and with truth values."""

_CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call"}
"""Operations that only run the program inside them."""


def is_same_program(function: Callable, other: Callable, examples: tuple) -> bool:
    """Whether both have the same arithmetic, in the same order.

    What NumPy or Python compute from an array is not in the function's program, but it is in that
    of the other. A function that cannot do without the values fails as soon as they are traced.
    """
    try:
        here = jax.make_jaxpr(function)(*examples)
        there = jax.make_jaxpr(lambda other, *x: other(*x))(other, *examples)
    except Exception:  # a user's function may raise anything
        return False
    found = list(_arithmetic(there.jaxpr))
    return found == list(_arithmetic(here.jaxpr)) and not any(
        _is_foreign(name) for name, _ in found
    )


def _is_foreign(name: str) -> bool:
    """Whether an operation runs a function of the user that must not close over traced arrays."""
    return "callback" in name or name.startswith("custom_vjp")


def _arithmetic(program: Any) -> Iterator[tuple]:
    """The operations of a program, and of the programs inside it, with their results' types."""
    for equation in program.eqns:
        name, inner = equation.primitive.name, _programs_in(equation.params)
        kinds = tuple((one.aval.shape, one.aval.dtype) for one in equation.outvars)
        if inner:
            yield from [] if name in _CALLS else [(name, kinds)]
            for one in inner:
                yield from _arithmetic(one)
        elif name not in _MOVES and not _is_exact(equation):
            yield name, kinds


def _programs_in(parameters: dict[str, Any]) -> list[Any]:
    """Programs among an operation's parameters, as loops have them."""
    is_program = lambda one: hasattr(one, "eqns")  # noqa: E731
    leaves = jax.tree.leaves(parameters, is_leaf=is_program)
    return [getattr(one, "jaxpr", one) for one in leaves if is_program(one)]


def _is_exact(equation: Any) -> bool:
    whole = (jnp.integer, jnp.bool_)
    avals = [one.aval for one in (*equation.invars, *equation.outvars)]
    is_whole = all(any(jnp.issubdtype(a.dtype, kind) for kind in whole) for a in avals)
    return equation.primitive.name in _EXACT and is_whole
