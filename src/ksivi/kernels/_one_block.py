"""An order statistic in one GPU thread block, which keeps all keys in registers.

Written by hand because XLA needs two dozen kernel launches, which cost more than the work itself.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Int, Scalar

from ._select import Keys, by_interpolation

_A_WARP = 2**11
"""Keys per warp, 64 in each thread. Few warps are best, because warps wait for each other."""


def select(
    keys: Keys, rank: int, size: int, interpret: bool = False
) -> tuple[Scalar, Int[Array, ""]]:
    """The key of the given rank among the `size` that count, and its index in the flattened keys.

    Keys that do not count are the largest integer.
    """
    flat = keys.ravel()
    padding = (0, 2 ** (flat.size - 1).bit_length() - flat.size)
    flat = jnp.pad(flat, padding, constant_values=jnp.iinfo(keys.dtype).max)
    key, place = pl.pallas_call(
        functools.partial(_kernel, rank=rank, size=size),
        out_shape=(jax.ShapeDtypeStruct((1,), keys.dtype), jax.ShapeDtypeStruct((1,), jnp.int32)),
        compiler_params=triton.CompilerParams(num_warps=max(1, flat.size // _A_WARP)),
        interpret=interpret,
        name="select",
    )(flat)
    return key[0], place[0]


def _kernel(keys_ref, key_ref, place_ref, *, rank: int, size: int) -> None:
    keys = keys_ref[...]
    largest = jnp.asarray(jnp.iinfo(keys.dtype).max, keys.dtype)
    highest = jnp.max(jnp.where(keys == largest, jnp.zeros_like(largest), keys))
    count_below = lambda at: jnp.sum((keys < at).astype(jnp.int32))  # noqa: E731
    threshold = by_interpolation(count_below, jnp.min(keys), highest, rank, size)
    key = jnp.min(jnp.where(keys < threshold, largest, keys))
    places = lax.broadcasted_iota(jnp.int32, keys.shape, 0)
    key_ref[0] = key
    place_ref[0] = jnp.min(jnp.where(keys == key, places, jnp.asarray(keys.size, jnp.int32)))
