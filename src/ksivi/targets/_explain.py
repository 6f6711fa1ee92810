"""Sentences about what is not finite: the site, the rows and their data."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

_SHOWN = 3
"""How many rows, or sites, a message names."""


class Term(NamedTuple):
    """One term of a log density: its values by row, its data if it has any, and its distribution."""

    name: str
    values: Any
    data: Any = None
    distribution: str = ""


def explain_terms(terms: Iterable[Term]) -> str:
    """Names the terms that are not finite, and their rows. Empty if all are finite."""
    bad = [one for one in terms if not np.isfinite(np.asarray(one.values, float)).all()]
    # NaN of a parameter makes everything below it NaN: the first term is the cause.
    return "; ".join(_explain(one) for one in bad[:_SHOWN])


def explain_rows(
    log_likelihood: Callable, x: Float[Array, " d"], blocks: Iterable[PyTree], num_rows: int
) -> str:
    """Names the first rows whose log likelihood is not finite at x. Empty if all are finite."""
    first = 0
    for block in blocks:
        values = np.asarray(lax.map(lambda row: _of_one_row(log_likelihood, x, row), block))
        rows = rows_that(~np.isfinite(values))
        if rows:
            missing = name_missing(block) if first == 0 else []
            where = name_rows([first + row for row in rows], num_rows)
            said = f"log_likelihood(x, row) is {values[rows[0]]} in {where}"
            return "; ".join([said, *(f"data: {one}" for one in missing)])
        first += len(values)
    return ""


def _of_one_row(log_likelihood: Callable, x: Float[Array, " d"], row: PyTree) -> Array:
    return log_likelihood(x, jax.tree.map(lambda column: column[None], row))


def rows_that(condition: Any) -> list[int]:
    """The rows, along the first axis, in which the condition holds anywhere."""
    found = np.asarray(condition)
    return np.flatnonzero(found.reshape(len(found), -1).any(axis=1)).tolist()


def name_rows(rows: list[int], count: int) -> str:
    """The first of some rows, of `count` rows in all: "rows 2 and 4 of 5, counted from 0"."""
    shown = [str(row) for row in rows[:_SHOWN]]
    shown += [f"{len(rows) - _SHOWN:,} more"] if len(rows) > _SHOWN else []
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)
    return f"row{'s' * (len(rows) > 1)} {listed} of {count:,}, counted from 0"


def name_missing(tree: Any) -> list[str]:
    """The arrays of a tree that have NaN or infinite entries, with their rows."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, jax.Array | np.ndarray) and np.ndim(leaf) and _is_floating(leaf):
            rows = rows_that(~np.isfinite(np.asarray(leaf)))
            if rows:
                name = jax.tree_util.keystr(path, simple=True, separator=".") or "data"
                found.append(f"{name!r} has NaN or infinite values in {name_rows(rows, len(leaf))}")
    return found


def _is_floating(array: Any) -> bool:
    return np.issubdtype(np.asarray(array).dtype, np.floating)


def _explain(term: Term) -> str:
    values = np.asarray(term.values, float)
    of = f" ({term.distribution})" if term.distribution else ""
    value = values[~np.isfinite(values)].flat[0] if values.ndim else values
    said = f"the log density of {term.name!r}{of} is {value}"
    if values.ndim == 0:
        return said + _explain_data(term.data, [])
    rows = rows_that(~np.isfinite(values))
    return f"{said} in {name_rows(rows, len(values))}{_explain_data(term.data, rows)}"


def _explain_data(data: Any, rows: list[int]) -> str:
    """The data in these rows, where they are few enough to show."""
    if data is None:
        return ""
    data = np.asarray(data)
    if rows and (not data.ndim or len(data) <= rows[-1]):
        return ""
    shown = [data[row] for row in rows[:_SHOWN]] if rows else [data]
    if any(one.size > 4 for one in shown):
        has_nan = any(not np.isfinite(one).all() for one in shown if one.dtype.kind == "f")
        return ", where the data have NaN or infinite values" if has_nan else ""
    return f", where the data are {', '.join(map(str, shown))}"
