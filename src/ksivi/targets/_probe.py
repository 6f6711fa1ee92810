"""Checks of a log density at one point, when a target is made."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._core.checks import as_floats, brief, describe
from .._core.compile import jit
from ._density import AbstractDensity, Point


def as_test_point(point: Any, dim: int, name: str = "test_point") -> Point:
    """A finite point of the right shape; the origin for None."""
    if point is None:
        return jnp.zeros(dim)
    expected = f"{dim} floating numbers, all finite"
    found = as_floats(point, name, expected)
    is_floating = jnp.issubdtype(getattr(point, "dtype", found.dtype), jnp.floating)
    if found.shape != (dim,) or not is_floating or not bool(jnp.isfinite(found).all()):
        raise ValueError(f"{name} must be {expected}, got {describe(point)}")
    return jnp.asarray(point) if isinstance(point, jax.Array | np.ndarray) else found


def probe(density: AbstractDensity, x: Float[Array, " d"]) -> None:
    """Raises `ValueError` unless the density and its score are finite at the test point.

    A traced point is not checked.
    """
    if isinstance(x, jax.core.Tracer):
        return
    try:
        value, score = _evaluate(density, x)
    except _WrongShape as error:
        raise ValueError(str(error)) from None
    except Exception as error:
        either = " or score" if density.has_given_score else ""
        raise ValueError(
            f"{density.given_as}{either} failed at a point of shape {x.shape}: {brief(error)}"
        ) from error
    if value is not None and not jnp.isfinite(value):
        raise ValueError(
            f"{density.given_as} must be finite at the test point, got {value} at {_show(x)}"
            f"{_reason(density, x)}"
        )
    if not bool(jnp.isfinite(score).all()):
        of = "" if density.given_as == "score" else f", the gradient of {density.given_as},"
        raise ValueError(
            f"score{of} must be finite at the test point, got {_show(score)} at {_show(x)}"
            f"{_reason(density, x)}"
        )
    if density.has_given_score:
        _compare_scores(density, x)


def _reason(density: AbstractDensity, x: Float[Array, " d"]) -> str:
    try:
        found = density.explain(x)
        return f": {found}" if found else ""
    except Exception:  # a user's function may raise anything; the message is then shorter
        return ""


class _WrongShape(ValueError):
    """A density returned a wrong shape or dtype; the message is already complete."""


@jit
def _evaluate(density: AbstractDensity, x: Float[Array, " d"]):
    # Compiled, so that a second target with the same function and shapes does not trace it again.
    value = density.value(x) if density.has_values else None
    if density.has_values and isinstance(value, str | list | tuple | dict | None):
        raise _WrongShape(
            f"{density.given_as} must return one floating scalar for one point, got {describe(value)}"
        )
    if value is not None and (jnp.shape(value) != () or not _is_floating(value)):
        raise _WrongShape(
            f"{density.given_as} must return one floating scalar for one point, got "
            f"shape {jnp.shape(value)} and dtype {jnp.result_type(value)}"
        )
    score = density.score(x)
    if jnp.shape(score) != x.shape or not _is_floating(score):
        raise _WrongShape(
            f"score must return shape {x.shape}, like the point, and floating numbers, "
            f"got shape {jnp.shape(score)} and dtype {jnp.result_type(score)}"
        )
    return value, score


def _is_floating(value: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(value), jnp.floating))


@jit
def _both_scores(density: AbstractDensity, x: Float[Array, " d"]):
    return density.score(x), density.derived_score(x)


def _compare_scores(density: AbstractDensity, x: Float[Array, " d"]) -> None:
    """Compares the given score with the gradient, near the test point."""
    x = x + 0.1 + 0.01 * jnp.arange(len(x)) / len(x)
    given, derived = _both_scores(density, x)
    agree = jnp.allclose(given, derived, rtol=1e-2, atol=1e-3 * (1 + jnp.max(jnp.abs(derived))))
    if bool(jnp.all(jnp.isfinite(derived))) and not agree:
        raise ValueError(
            f"score disagrees with the gradient of log_density at {_show(x)}: {_show(given)} and "
            f"{_show(derived)}"
        )


def _show(x: Float[Array, " d"]) -> str:
    numbers = ", ".join(f"{float(value):.4g}" for value in x[:4])
    return f"[{numbers}{', …' if len(x) > 4 else ''}]"
