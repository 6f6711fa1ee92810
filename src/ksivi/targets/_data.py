"""Targets with rows: in memory, over several devices, or fed from the host."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Scalar

from .._core.checks import as_count, describe, holds_numbers
from ._density import DataDensity, Feed, Point
from ._rows import Rows

if TYPE_CHECKING:
    from ._target import Target


def data_density(
    log_prior: Callable[[Point], Scalar],
    log_likelihood: Callable[[Point, PyTree], Scalar],
    data: PyTree | Rows,
    batch_size: int | None,
) -> DataDensity:
    """Of rows in memory, or on the host, of which a first minibatch is then at hand."""
    is_fed = isinstance(data, Rows)
    num_rows = data.num_rows if is_fed else _num_rows(data)
    if is_fed and batch_size is None:
        raise ValueError(f"batch_size must be given for rows that stay on the host, {num_rows} of them, got None")
    if batch_size is not None and as_count(batch_size, "batch_size") > num_rows:
        raise ValueError(f"batch_size must be at most the {num_rows} rows of data, got {batch_size}")
    return DataDensity(
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        data=jax.tree.map(jnp.asarray, data.take(0, 0, batch_size or 0) if is_fed else data),
        rows=None,
        batch_size=batch_size,
        feed=Feed(jnp.zeros((), jnp.int32), data) if is_fed else None,
    )


def feed_of(target: "Target") -> Feed | None:
    """Where rows come from that stay on the host; None for all other targets."""
    return target.density.feed if isinstance(target.density, DataDensity) else None


def require_all_rows(target: "Target", name: str) -> None:
    """Refuses (`ValueError`) rows that stay on the host, on behalf of what needs them all."""
    if feed_of(target) is not None:
        raise ValueError(f"{name} needs all rows in memory, and this target's stay on the host: use ksivi.train alone")


def at_step(target: "Target", cursor: Int[Array, ""]) -> "Target":
    """The target at so many steps into the rows at hand; itself where none are fed."""
    if feed_of(target) is None:
        return target
    return eqx.tree_at(lambda target: target.density.feed.cursor, target, cursor)


def with_data(target: "Target", change: Callable[[PyTree], PyTree]) -> "Target":
    """The target with other rows at hand, or with the same ones elsewhere."""
    if not isinstance(target.density, DataDensity):
        raise ValueError("a mesh with an axis named data needs a target with rows, made with Target.from_data")
    density = dataclasses.replace(target.density, data=change(target.density.data))
    return eqx.tree_at(lambda target: target.density, target, density)


def _num_rows(data: PyTree) -> int:
    for leaf in jax.tree.leaves(data):
        if not isinstance(leaf, jax.Array | np.ndarray) or not holds_numbers(leaf.dtype):
            raise ValueError(f"data must hold arrays of numbers, got {describe(leaf)}")
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"data must hold arrays with the same number of rows, got leading lengths {sorted(map(str, lengths))}"
        )
    return lengths.pop()
