"""Standard normals, at two fifths of their price where a CPU trains."""

import contextlib
import contextvars
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float, PRNGKeyArray, UInt

from ._sharding import platform

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA

_is_quick: contextvars.ContextVar[bool] = contextvars.ContextVar("is_quick", default=False)

Words = UInt[Array, " n"]


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Within it, `normal` on a CPU has numbers of its own, other than those of `jax.random.normal`."""
    before = _is_quick.set(platform() == "cpu")
    try:
        yield
    finally:
        _is_quick.reset(before)


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "..."]:
    """`jax.random.normal`, or within `quickly`, in single precision, normals by the method of Box and Muller.

    Both come from the blocks of Threefry-2x32 with 20 rounds under the key, of which JAX uses one word of two. What JAX
    promises of its keys holds for either: keys that are split or folded give independent streams, and numbers depend on
    the key alone, not on batches or devices. The largest normal there can be is 6.8, JAX's is 5.4.
    """
    is_single = jax.dtypes.canonicalize_dtype(dtype) == jnp.float32
    if not (_is_quick.get() and is_single and str(jax.random.key_impl(key)) == "threefry2x32"):
        return jax.random.normal(key, shape, dtype)
    size = math.prod(shape)
    quarter = -(-size // 4)
    key_words, counts = jax.random.key_data(key), jnp.arange(quarter, dtype=jnp.uint32)
    # A loop, for what it carries is stored: XLA fuses a formula with each use of it, and would compute all pairs twice.
    advance = lambda i, pairs: (pairs[1], _pairs(*_threefry(key_words, counts + jnp.uint32(quarter) * i)))  # noqa: E731
    nothing = jnp.zeros(quarter, jnp.complex64)
    pairs = lax.fori_loop(jnp.uint32(0), jnp.uint32(2), advance, (nothing, nothing))
    return jnp.concatenate([part for pair in pairs for part in (pair.real, pair.imag)])[:size].reshape(shape)


def _threefry(key: UInt[Array, "2"], counts: Words) -> tuple[Words, Words]:
    """Both words of the blocks (0, count). By hand, as XLA runs JAX's as a loop that makes each word apart."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    a, b = jnp.broadcast_to(keys[0], counts.shape), counts + keys[1]
    for i in range(5):
        for by in _ROTATIONS[i % 2]:
            a = a + b
            b = a ^ ((b << by) | (b >> (32 - by)))
        a, b = a + keys[(i + 1) % 3], b + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return a, b


def _pairs(a: Words, b: Words) -> Complex[Array, " n"]:
    """√(−2 log u) e^{iφ}, u and φ uniform on (0, 1] and the circle: real and imaginary part are independent normals."""
    radius = jnp.sqrt(-2 * jnp.log((a.astype(jnp.float32) + 0.5) * jnp.float32(2**-32)))
    # An angle within ±π/4 of an axis, for which few terms of sine and cosine do; three more bits say of which.
    angle = ((b >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2**-23 * np.pi / 2) - jnp.float32(np.pi / 4)
    square = angle * angle
    sine = angle * (1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5_040 + square / 362_880))))
    cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40_320)))
    swapped = (b & 1) == 1
    across, along = jnp.where(swapped, cosine, sine), jnp.where(swapped, sine, cosine)
    return lax.complex(radius * _signed(along, b & 2), radius * _signed(across, b & 4))


def _signed(a: Float[Array, " n"], negative: Words) -> Float[Array, " n"]:
    return jnp.where(negative == 0, a, -a)
