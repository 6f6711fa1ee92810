"""Argument checks: every message names the argument, what came and what was expected."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


def as_key(key: Any, name: str = "key") -> PRNGKeyArray:
    """A typed key, or a batch of them; old-style `uint32` keys are wrapped."""
    dtype = getattr(key, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return key
    if dtype == jnp.uint32 and key.ndim >= 1:
        try:
            return jax.random.wrap_key_data(key)
        except (TypeError, ValueError):
            pass
    raise ValueError(f"{name} must be a JAX random key such as jax.random.key(0), got {describe(key)}")


def as_single_key(key: Any, name: str = "key") -> PRNGKeyArray:
    key = as_key(key, name)
    if key.shape != ():
        raise ValueError(f"{name} must be one key, got a batch of shape {key.shape}")
    return key


def as_count(value: Any, name: str, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {describe(value)}")
    return int(value)


def as_choice(value: Any, name: str, choices: tuple) -> Any:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def as_positive(value: Any, name: str) -> Float[Array, ""]:
    """One positive finite number; traced values pass unseen."""
    if isinstance(value, bool | str) or value is None or np.shape(value) != ():
        raise ValueError(f"{name} must be one positive number, got {describe(value)}")
    # By NumPy: within a trace even a comparison of known values is traced.
    if not isinstance(value, jax.core.Tracer) and not 0 < np.asarray(value) < np.inf:
        raise ValueError(f"{name} must be one positive number, got {value}")
    return jnp.asarray(value, jnp.result_type(float))


def as_samples(x: Any, name: str, dim: int | None = None) -> Float[Array, "n d"]:
    """A finite floating (n, d) array."""
    return jnp.asarray(as_numpy_samples(x, name, dim))


def as_numpy_samples(x: Any, name: str, dim: int | None = None) -> Float[np.ndarray, "n d"]:
    """The same in NumPy, in the precision that came."""
    expected = f"(n, {'d' if dim is None else dim})"
    x = np.asarray(x)
    shape, dtype = x.shape, x.dtype
    if len(shape) != 2 or 0 in shape or (dim is not None and shape[1] != dim):
        raise ValueError(f"{name} must be an array of shape {expected}, got shape {shape}")
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"{name} must hold floating-point numbers, got dtype {dtype}")
    bad = int(np.sum(~np.isfinite(x)))
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries of {x.size}")
    return x


def require_callable(value: Any, name: str) -> None:
    if not callable(value):
        raise ValueError(f"{name} must be a function, got {type(value).__name__}")


def require_point(x: Any, dim: int) -> None:
    """Refuses, while tracing, anything but one floating point of the target's space."""
    if not isinstance(x, jax.Array | np.ndarray):
        raise ValueError(f"x must be an array of shape ({dim},), got {describe(x)}")
    shape, dtype = jnp.shape(x), jnp.result_type(x)
    if shape != (dim,):
        raise ValueError(f"x must be one point of shape ({dim},), got shape {shape}; use jax.vmap for a batch")
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"x must hold floating-point numbers, got dtype {dtype}")


def describe(value: Any) -> str:
    """What came, in a few words."""
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    return f"{value!r} ({type(value).__name__})"
