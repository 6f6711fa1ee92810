"""The normal random numbers of PyTorch on a CPU, without PyTorch, for data that were simulated with
it."""

import math

import numpy as np
from jaxtyping import Float

_BLOCK = 16


class TorchNormals:
    r"""The numbers of successive calls of `torch.randn` after `torch.manual_seed(seed)`, up to
    rounding in float32.

    The generator is MT19937. Calls for 16 numbers or more use Box-Muller in blocks of 16, on
    uniforms of 24 bits:

        xⱼ, xⱼ₊₈ = √(−2 log(1 − uⱼ)) · (cos, sin)(2π uⱼ₊₈),   j = 0..7,

    If the length is not a multiple of 16, the last 16 numbers are drawn again. Calls for fewer
    numbers draw them in pairs, from 53 bits, and keep an odd one for the next such call.
    """

    def __init__(self, seed: int):
        # RandomState(seed) initialises MT19937 as PyTorch does, and integers of the full range are
        # its raw output.
        self._bits = np.random.RandomState(seed)
        self._kept: float | None = None

    def draw(self, n: int) -> Float[np.ndarray, " n"]:
        """The next n numbers, as float32."""
        if n < _BLOCK:
            return np.array([self._single() for _ in range(n)], np.float32)
        numbers = self._uniforms(n)
        for start in range(0, n - _BLOCK + 1, _BLOCK):
            numbers[start : start + _BLOCK] = _box_muller(numbers[start : start + _BLOCK])
        if n % _BLOCK:
            numbers[-_BLOCK:] = _box_muller(self._uniforms(_BLOCK))
        return numbers

    def _uniforms(self, n: int) -> Float[np.ndarray, " n"]:
        return (self._words(n) & np.uint32(2**24 - 1)).astype(np.float32) * np.float32(2.0**-24)

    def _single(self) -> float:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return kept
        angle, length = 2 * math.pi * self._double(), math.sqrt(-2 * math.log1p(-self._double()))
        self._kept = length * math.sin(angle)
        return length * math.cos(angle)

    def _double(self) -> float:
        high, low = (int(word) for word in self._words(2))
        return ((high << 32 | low) & (2**53 - 1)) * 2.0**-53

    def _words(self, n: int) -> np.ndarray:
        return self._bits.randint(0, 2**32, n, dtype=np.uint32)


def _box_muller(uniforms: Float[np.ndarray, "16"]) -> Float[np.ndarray, "16"]:
    length = np.sqrt(np.float32(-2) * np.log(np.float32(1) - uniforms[:8]))
    angle = np.float32(2 * math.pi) * uniforms[8:]
    return np.concatenate([length * np.cos(angle), length * np.sin(angle)])
