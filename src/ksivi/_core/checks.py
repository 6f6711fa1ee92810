"""Argument checks. Each error message names the argument, what was expected and what was given."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


def as_key(key: Any, name: str = "key") -> PRNGKeyArray:
    """A typed key, or a batch of typed keys. Old-style `uint32` keys are wrapped."""
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return key
    if dtype == jnp.uint32 and key.ndim >= 1:
        try:
            return jax.random.wrap_key_data(key)
        except (TypeError, ValueError):
            pass
    raise ValueError(
        f"{name} must be a JAX random key such as jax.random.key(0), got {describe(key)}"
    )


def as_single_key(key: Any, name: str = "key") -> PRNGKeyArray:
    key = as_key(key, name)
    if key.shape != ():
        raise ValueError(f"{name} must be one key, got a batch of shape {key.shape}")
    return key


def as_keys(key: Any) -> PRNGKeyArray:
    """One key, or a flat batch of keys."""
    key = as_key(key)
    if key.ndim > 1 or key.size == 0:
        raise ValueError(f"key must be one key or a flat batch of keys, got shape {key.shape}")
    return key


def as_count(value: Any, name: str, minimum: int = 1) -> int:
    """A whole number of at least `minimum`. It must fit in 32 bits, as step counts in JAX do."""
    count = as_seed(value, name, minimum)
    if count >= 2**31:
        raise ValueError(f"{name} must be less than 2**31, got {count}")
    return count


def as_seed(value: Any, name: str = "seed", minimum: int = 0) -> int:
    """A whole number of at least `minimum`, of any size."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < minimum:
        raise ValueError(
            f"{name} must be a whole number of at least {minimum}, got {describe(value)}"
        )
    return int(value)


def as_widths(value: Any, name: str) -> tuple[int, ...]:
    """A list of layer widths. It may be empty."""
    if (
        not isinstance(value, Sequence | np.ndarray)
        or isinstance(value, str | bytes)
        or np.ndim(value) != 1
    ):
        raise ValueError(
            f"{name} must be a list of widths, such as (50, 50), got {describe(value)}"
        )
    return tuple(as_count(width, f"{name}[{i}]") for i, width in enumerate(value))


def as_choice(value: Any, name: str, choices: tuple) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if (
        not isinstance(value, str | int | float | None)
        or isinstance(value, bool)
        or value not in choices
    ):
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got {describe(value)}"
        )
    return value


def as_flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {describe(value)}")
    return bool(value)


def as_floats(value: Any, name: str, expected: str = "real numbers") -> Float[Array, "..."]:
    """Real numbers in JAX's default precision. Traced values are accepted."""
    if not _is_real(value):
        raise ValueError(f"{name} must be {expected}, got {describe(value)}")
    return jnp.asarray(value, jnp.result_type(float))


def holds_for_all(values: Array, holds: Callable[[np.ndarray], Any]) -> bool:
    """Whether the condition holds for all values. Traced values are not checked."""
    return isinstance(values, jax.core.Tracer) or bool(np.all(holds(np.asarray(values))))


def as_array(value: Any, name: str) -> Array:
    """An array of booleans, integers or floats, in its own dtype."""
    if not _is_real(value) and getattr(value, "dtype", None) != jnp.bool_:
        raise ValueError(f"{name} must be an array of numbers, got {describe(value)}")
    return jnp.asarray(value)


def as_numbers(value: Any, name: str, shape: tuple[int | str, ...]) -> Float[np.ndarray, "..."]:
    """Real numbers as a NumPy array in double precision.

    A name in `shape` stands for any length except 0.
    """
    fits = _is_real(value) and np.ndim(value) == len(shape)
    if not fits or any(
        n == 0 if isinstance(m, str) else n != m
        for n, m in zip(np.shape(value), shape, strict=True)
    ):
        expected = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        raise ValueError(f"{name} must be real numbers of shape {expected}, got {describe(value)}")
    return np.asarray(value, np.float64)


def _is_real(value: Any) -> bool:
    """Whether the value is an integer, a float, or an array of them."""
    dtype = (
        value.dtype
        if isinstance(value, jax.Array | np.ndarray | np.generic)
        else _dtype_in_jax(value)
    )
    return holds_numbers(dtype) and dtype != jnp.bool_


def _dtype_in_jax(value: Any) -> Any:
    try:
        return jnp.asarray(value).dtype
    except Exception:  # a conversion may raise anything; then it is not a number
        return None


def holds_numbers(dtype: Any) -> bool:
    """Whether arrays of this dtype hold booleans, integers or floats."""
    kinds = (jnp.bool_, jnp.integer, jnp.floating)
    return isinstance(dtype, np.dtype) and any(jnp.issubdtype(dtype, kind) for kind in kinds)


def count_rows(data: PyTree) -> int:
    """The number of rows of the arrays. Raises `ValueError` if it differs, or for other data."""
    for leaf in jax.tree.leaves(data):
        if not isinstance(leaf, jax.Array | np.ndarray) or not holds_numbers(leaf.dtype):
            raise ValueError(
                f"data must hold arrays of numbers, got {describe(leaf)}; make lists into arrays "
                "with numpy.array, and text into integers"
            )
    lengths = sorted({leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)})
    if not lengths:
        raise ValueError(f"data must hold at least one array of numbers, got {describe(data)}")
    if len(lengths) > 1 or lengths[0] == 0:
        raise ValueError(
            "data must hold arrays with the same number of rows, one per observation and at least "
            f"one, got leading lengths {lengths}"
        )
    return lengths[0]


def as_positive(value: Any, name: str) -> Float[Array, ""]:
    """One positive finite number. Traced values are not checked."""
    found = as_floats(value, name, "one positive number")
    if found.shape != () or not (
        isinstance(value, jax.core.Tracer) or _is_normal(value, found.dtype)
    ):
        raise ValueError(f"{name} must be one positive number, got {describe(value)}")
    return found


def as_fraction(value: Any, name: str) -> Float[Array, ""]:
    """One number between 0 and 1, both excluded. Traced values are not checked."""
    found = as_positive(value, name)
    if not isinstance(value, jax.core.Tracer) and value >= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return found


def _is_normal(value: Any, dtype: Any) -> bool:
    """Whether the value is positive and finite in this dtype, and does not round to 0."""
    # NumPy, because inside a trace JAX would trace even a comparison of known values.
    limits = jnp.finfo(dtype)
    return bool(float(limits.tiny) <= np.asarray(value) <= float(limits.max))


def as_samples(x: Any, name: str, dim: int | None = None) -> Float[Array, "n d"]:
    """An (n, d) array of finite floats."""
    return jnp.asarray(as_numpy_samples(x, name, dim))


def as_numpy_samples(x: Any, name: str, dim: int | None = None) -> Float[np.ndarray, "n d"]:
    """An (n, d) NumPy array of finite floats, in the precision that was given."""
    expected = f"(n, {'d' if dim is None else dim})"
    try:
        x = np.asarray(x)
    except jax.errors.TracerArrayConversionError:
        raise
    except (TypeError, ValueError) as error:  # keys and ragged lists
        raise ValueError(
            f"{name} must be an array of shape {expected}, got {describe(x)}"
        ) from error
    shape, dtype = x.shape, x.dtype
    if len(shape) != 2 or 0 in shape or (dim is not None and shape[1] != dim):
        raise ValueError(f"{name} must be an array of shape {expected}, got shape {shape}")
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"{name} must hold floating-point numbers, got dtype {dtype}")
    bad = int(np.sum(~np.isfinite(x)))
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries of {x.size}")
    return x


def require_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise ValueError(
            f"callbacks must be a list of functions of a Chunk, got {describe(callbacks)}"
        )


def require_callable(value: Any, name: str) -> None:
    if not callable(value):
        raise ValueError(f"{name} must be a function, got {type(value).__name__}")


@contextlib.contextmanager
def attributing_errors_to(name: str, where: str = "") -> Iterator[None]:
    """Turns any exception of a user's function into a `ValueError` that names the argument."""
    try:
        yield
    except Exception as error:
        is_ours = isinstance(error, ValueError) and str(error).startswith((f"{name} ", f"{name}["))
        if is_ours:
            raise
        raise ValueError(f"{name} failed{where and ' ' + where}: {brief(error)}") from error


_ADVICE = {
    "TracerArrayConversionError": "use jax.numpy instead of NumPy",
    "TracerBoolConversionError": "use jnp.where or jax.lax.cond instead of if",
    "TracerIntegerConversionError": "use jnp.take or jax.lax instead of indexing with a traced value",
    "ConcretizationTypeError": "use jax.numpy and jax.lax: the values are not known while tracing",
}


def brief(error: Exception) -> str:
    """The kind of an error and the first line of its message; JAX writes pages."""
    kind, line = type(error).__name__, next(iter(str(error).strip().splitlines()), "")
    advice = _ADVICE.get(kind)
    said = f"{kind}: {line}" if line else kind
    return f"{said.rstrip('.')}; {advice}" if advice else said


def require_point(x: Any, dim: int) -> None:
    """Refuses, while tracing, anything but one floating point of the target's space."""
    if not isinstance(x, jax.Array | np.ndarray):
        raise ValueError(f"x must be an array of shape ({dim},), got {describe(x)}")
    shape, dtype = jnp.shape(x), jnp.result_type(x)
    if shape != (dim,):
        raise ValueError(
            f"x must be one point of shape ({dim},), got shape {shape}; use jax.vmap for a batch"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"x must hold floating-point numbers, got dtype {dtype}")


def require_points(x: Any, dim: int) -> None:
    """Refuses, while tracing, anything but floating points of the target's space as rows."""
    if not isinstance(x, jax.Array | np.ndarray) or x.ndim != 2 or x.shape[1] != dim:
        raise ValueError(f"x must be an array of shape (n, {dim}), got {describe(x)}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"x must hold floating-point numbers, got dtype {x.dtype}")


def describe(value: Any) -> str:
    """A short description of a value, for error messages."""
    if isinstance(value, jax.Array | np.ndarray) and (
        value.ndim or isinstance(value, jax.core.Tracer)
    ):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if hasattr(value, "to_numpy") and hasattr(value, "columns"):
        names = ", ".join(map(str, value.columns))
        return f"a data frame of shape {value.shape} with the columns {names}"
    text = " ".join(repr(value).split())
    return f"{text if len(text) < 100 else text[:99] + '…'} ({type(value).__name__})"
