"""What the training loop asks of a target with data."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Int, PyTree

from ._target import Target


def require_all_rows(target: Target, name: str) -> None:
    """Raises `ValueError` for a target whose rows stay on the host: `name` needs all of them."""
    if target.host_rows is not None:
        raise ValueError(
            f"{name} needs all rows in memory, and the rows of this target stay on the host "
            "(ksivi.Rows): use ksivi.train"
        )


def at_step(target: Target, step: Int[Array, ""]) -> Target:
    """The target at this step of the rows that were last read from the host."""
    if target.host_rows is None:
        return target
    return eqx.tree_at(lambda t: t.density, target, target.density.at_step(step))


def with_data(target: Target, change: Callable[[PyTree], PyTree]) -> Target:
    """The target with its data replaced by `change(data)`: other rows, or rows on other devices."""
    return eqx.tree_at(lambda t: t.density, target, target.density.with_data(change))
