"""The result of a chunk of steps."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, PyTree

Shape = tuple[int, int]
"""The number of blocks in a chunk, and of steps in a block."""


class ChunkResult(NamedTuple):
    """The result of a chunk of steps. A batch of runs has a leading axis.

    **Attributes:**

    - `state`: the state for the next step. `state.step` is the number of steps taken.
    - `records`: the numbers that each step recorded.
    - `finite`: whether the state is finite.
    - `positions`: the positions of a method's points after each step, or None.
    """

    state: PyTree
    records: dict[str, Float[Array, " t"]]
    finite: Bool[Array, ""]
    positions: Float[Array, "t n d"] | None = None
