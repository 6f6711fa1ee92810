"""Standard normal numbers that are fast on a CPU, for training."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float, PRNGKeyArray, UInt

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA

Words = UInt[Array, " n"]
Pairs = Complex[Array, " n"]


Normal = Callable[[PRNGKeyArray, tuple[int, ...], DTypeLike], Float[Array, "..."]]


def fastest_normal(platform: str) -> Normal:
    """The fastest generator of standard normals: Box–Muller on a CPU, JAX's elsewhere."""
    return box_muller if platform == "cpu" else jax.random.normal


def box_muller(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "..."]:
    """Standard normals by the Box–Muller method in single precision; otherwise `jax.random.normal`.

    Both draw blocks of Threefry-2x32 with 20 rounds. JAX combines the two words of a block by
    exclusive or; this method uses both. It keeps JAX's guarantees: keys that are split or folded
    give independent streams, and the numbers depend only on key and shape, not on batches or
    devices. Two arrays of 256 × 100 take 0.35 ms on two cores of an ARM server, and 0.81 ms with
    JAX. The largest normals are ±6.8; JAX's are ±5.4.
    """
    size = math.prod(shape)
    if not _is_possible(key, size, dtype):
        return jax.random.normal(key, shape, dtype)
    words, counts = jax.random.key_data(key), jnp.arange(-(-size // 4), dtype=jnp.uint32)

    def advance(half: UInt[Array, ""], pairs: tuple[Pairs, Pairs]) -> tuple[Pairs, Pairs]:
        return pairs[1], _pairs(*_threefry(words, counts + half * jnp.uint32(len(counts))))

    # A loop stores what it carries. Without it, XLA would fuse the formula with each of its two
    # uses and compute all pairs twice.
    nothing = jnp.zeros(len(counts), jnp.complex64)
    pairs = lax.fori_loop(jnp.uint32(0), jnp.uint32(2), advance, (nothing, nothing))
    return jnp.concatenate([part for pair in pairs for part in (pair.real, pair.imag)])[
        :size
    ].reshape(shape)


def _is_possible(key: PRNGKeyArray, size: int, dtype: DTypeLike) -> bool:
    """Whether this is one key of JAX's default generator, for float32, with few enough blocks."""
    is_threefry = key.ndim == 0 and str(jax.random.key_impl(key)) == "threefry2x32"
    return is_threefry and size <= 2**33 and jax.dtypes.canonicalize_dtype(dtype) == jnp.float32


def _threefry(key: UInt[Array, "2"], counts: Words) -> tuple[Words, Words]:
    """Both words of the blocks (1, count). The blocks (0, count) are the keys that JAX splits off.

    Not JAX's own function, because XLA compiles that to a loop that computes each word separately.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    a, b = jnp.broadcast_to(keys[0] + 1, counts.shape), counts + keys[1]
    for i in range(5):
        for by in _ROTATIONS[i % 2]:
            a = a + b
            b = a ^ ((b << by) | (b >> (32 - by)))
        a, b = a + keys[(i + 1) % 3], b + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return a, b


def _pairs(a: Words, b: Words) -> Pairs:
    """√(−2 log u) e^{iφ} for uniform u on (0, 1] and φ on the circle.

    The real and the imaginary part are independent standard normals.
    """
    radius = jnp.sqrt(-2 * jnp.log((a.astype(jnp.float32) + 0.5) * jnp.float32(2**-32)))
    # An angle within ±π/4 of an axis needs few terms of sine and cosine. Two more bits choose the
    # axis.
    angle = ((b >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2**-23 * np.pi / 2) - jnp.float32(
        np.pi / 4
    )
    square = angle * angle
    sine = angle * (
        1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5_040 + square / 362_880)))
    )
    cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40_320)))
    is_vertical, is_negative = (b & 1) == 1, (b & 2) == 2
    radius = jnp.where(is_negative, -radius, radius)
    across, along = jnp.where(is_vertical, cosine, sine), jnp.where(is_vertical, sine, cosine)
    return lax.complex(radius * along, radius * across)
