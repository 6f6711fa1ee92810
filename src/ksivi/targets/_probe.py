"""Eager checks of a log density at one point."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._core.checks import as_floats, describe
from .._core.compile import jit
from ._density import AbstractDensity, FunctionDensity, Point, ScoreDensity


def as_test_point(point: Any, dim: int, name: str = "test_point") -> Point:
    if point is None:
        return jnp.zeros(dim)
    expected = f"{dim} floating numbers, all finite"
    found = as_floats(point, name, expected)
    is_floating = jnp.issubdtype(getattr(point, "dtype", found.dtype), jnp.floating)
    if found.shape != (dim,) or not is_floating or not bool(jnp.isfinite(found).all()):
        raise ValueError(f"{name} must be {expected}, got {describe(point)}")
    return jnp.asarray(point) if isinstance(point, jax.Array | np.ndarray) else found


def probe(density: AbstractDensity, x: Float[Array, " d"]) -> None:
    """Refuses a density that is not a finite scalar, or whose score is not a finite vector, at the test point."""
    try:
        value, score = _evaluate(density, x)
    except _OddShape:
        raise
    except Exception as error:
        either = " or score" if isinstance(density, FunctionDensity) and density.given_score is not None else ""
        raise ValueError(f"{density.given_as}{either} failed at a point of shape {x.shape}: {error}") from error
    if value is not None and not jnp.isfinite(value):
        raise ValueError(f"{density.given_as} must be finite at the test point, got {value} at {_show(x)}")
    if not bool(jnp.isfinite(score).all()):
        of = "" if density.given_as == "score" else f", the gradient of {density.given_as},"
        raise ValueError(f"score{of} must be finite at the test point, got {_show(score)} at {_show(x)}")
    if isinstance(density, FunctionDensity) and density.given_score is not None:
        _compare_scores(density, x)


class _OddShape(ValueError):
    """Of what a density returned, in words of our own."""


@jit
def _evaluate(density: AbstractDensity, x: Float[Array, " d"]):
    # Compiled, so that a second target of the same function and shapes runs none of the user's Python.
    value = None if isinstance(density, ScoreDensity) else density.value(x)
    if value is not None and (jnp.shape(value) != () or not jnp.issubdtype(jnp.result_type(value), jnp.floating)):
        raise _OddShape(
            f"{density.given_as} must return one floating scalar for one point, got "
            f"shape {jnp.shape(value)} and dtype {jnp.result_type(value)}"
        )
    score = density.score(x)
    if jnp.shape(score) != x.shape or not jnp.issubdtype(jnp.result_type(score), jnp.floating):
        raise _OddShape(
            f"score must return shape {x.shape}, like the point, and floating numbers, "
            f"got shape {jnp.shape(score)} and dtype {jnp.result_type(score)}"
        )
    return value, score


@jit
def _both_scores(density: FunctionDensity, x: Float[Array, " d"]):
    return density.score(x), FunctionDensity(density.log_density, None).score(x)


def _compare_scores(density: FunctionDensity, x: Float[Array, " d"]) -> None:
    x = x + 0.1 + 0.01 * jnp.arange(len(x)) / len(x)
    given, derived = _both_scores(density, x)
    agree = jnp.allclose(given, derived, rtol=1e-2, atol=1e-3 * (1 + jnp.max(jnp.abs(derived))))
    if bool(jnp.all(jnp.isfinite(derived))) and not agree:
        raise ValueError(
            f"score disagrees with the gradient of log_density at {_show(x)}: {_show(given)} and {_show(derived)}"
        )


def _show(x: Float[Array, " d"]) -> str:
    numbers = ", ".join(f"{float(value):.4g}" for value in x[:4])
    return f"[{numbers}{', …' if len(x) > 4 else ''}]"
