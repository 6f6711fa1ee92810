"""What a chunk of steps leads to."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, PyTree

Shape = tuple[int, int]
"""Blocks in a chunk, and steps in a block."""


class Advanced(NamedTuple):
    """What a chunk of steps leads to. A batch of runs has a leading axis.

    **Attributes:**

    - `state`: what the next step needs, with the number of steps taken in `state.step`.
    - `records`: what each step recorded.
    - `finite`: whether the state is finite.
    - `positions`: where a method's points were after each step, or None.
    """

    state: PyTree
    records: dict[str, Float[Array, " t"]]
    finite: Bool[Array, ""]
    positions: Float[Array, "t n d"] | None = None
