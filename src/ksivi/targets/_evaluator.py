"""Log densities and scores of many points, from one small program of the target."""

import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._core.compile import one_shot
from .._core.sharding import has_mesh, on_every_device, platform, shard
from ._target import Target

_SIZES = (2_048, 256, 32)
"""Points per call of the program. Each size is compiled once, when it is first needed."""
_SIZES_IF_EXPENSIVE = (64, 8)
"""A few points are then enough to keep a device busy."""
_FEW_ROWS = 1_000
_LARGE = 2**16
"""The numbers in an array that fills a good part of a core's cache."""


class OutOfTime(Exception):
    """The deadline of an evaluator has passed."""


class Evaluator:
    """Evaluates log p and ∇ log p at points in NumPy arrays, in the target's own coordinates.

    A search, chains and checks are driven from the host around this one program. So a new model
    compiles it and nothing else, and new data of the same shapes compile nothing.

    **Attributes:**

    - `count`: the number of points evaluated so far.
    - `deadline`: a time of `time.perf_counter`, after which `OutOfTime` is raised.
    - `watch`: a function that is called with the count at every call, to show progress.

    ```python
    evaluate = ksivi.targets.Evaluator(target)
    log_density, score = evaluate(np.zeros((100, target.dim)))  # (100,), (100, dim)
    ```
    """

    def __init__(self, target: Target):
        self.target, self.dim, self.count = target.unwhitened(), target.dim, 0
        self.deadline = math.inf
        self.watch: Callable[[int], None] | None = None
        self._programs: dict[int, Callable] = {}

    def __call__(
        self, points: Float[np.ndarray, "n d"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
        self.spend(len(points))
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
            x = np.asarray(points, jnp.result_type(float))
        # All calls are made before the first result is read, so that the device is never idle.
        parts = [(len(part), self._call(part)) for part in _parts(x, self._sizes)]
        values = [np.asarray(value, np.float64)[:n] for n, (value, _) in parts]
        scores = [np.asarray(score, np.float64)[:n] for n, (_, score) in parts]
        return np.concatenate([np.zeros(0), *values]), np.concatenate([x[:0], *scores])

    def spend(self, count: int) -> None:
        """Counts evaluations, also those of programs around the target.

        Raises `OutOfTime` if the deadline has passed.
        """
        if self.is_over:
            raise OutOfTime
        self.count += count
        if self.watch is not None:
            self.watch(self.count)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return _SIZES_IF_EXPENSIVE if self.is_expensive else _SIZES

    @functools.cached_property
    def is_expensive(self) -> bool:
        """Whether a point costs so much that few are evaluated at a time, by few chains."""
        return self.target.density.has_many_rows or is_in_turn(self.target)

    def fits_a_program(self, count: int) -> bool:
        """Whether a program around the target may evaluate so many points together.

        More take more memory than the evaluator does. Functions outside JAX may be slow, and refuse
        points that are not finite: calls from the host keep to the deadline, and leave these out.
        """
        return count <= self._sizes[0] and not self.target.density.calls_python

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self.deadline

    @property
    def far(self) -> "Evaluator":
        """The evaluator to use far from the mass: this one, unless its target is a surrogate."""
        density = self.target.density
        if density.far is density:
            return self
        other = Evaluator(eqx.tree_at(lambda t: t.density, self.target, density.far))
        other.deadline, other.watch = self.deadline, None
        return other

    def log_density(self, points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        return self(points)[0]

    def _call(self, x: Float[np.ndarray, "n d"]) -> tuple[Array, Array]:
        size = min(size for size in self._sizes if len(x) <= size)
        padded = np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])
        if size not in self._programs:
            self._programs[size] = _bound(self.target, padded)
        return self._programs[size](padded)


def _parts(x: Float[np.ndarray, "n d"], sizes: tuple[int, ...]) -> list[Float[np.ndarray, "m d"]]:
    """Parts of the sizes. A part is less than half full only at the smallest size."""
    parts, begin = [], 0
    while begin < len(x):
        size = next(size for size in sizes if len(x) - begin >= size / 2 or size == sizes[-1])
        parts.append(x[begin : begin + size])
        begin += size
    return parts


@one_shot
def _evaluate(target: Target, x: Float[Array, "n d"]) -> tuple[Array, Array]:
    return at_points(target, x)


def _bound(target: Target, x: Float[np.ndarray, "n d"]) -> Callable:
    """The program for this target, whose arrays are put on the devices once.

    Looking it up for every call would take longer than the call.
    """
    program, arrays = _evaluate.program_for((target, x), {})  # type: ignore[attr-defined]
    return lambda x: program([*arrays[:-1], on_every_device(x)]).tree()  # x is the last leaf


def at_points(
    target: Target, x: Float[Array, "n d"]
) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
    """log p and ∇ log p at each point."""
    if is_in_turn(target):
        return lax.map(target.log_density_and_score, x)
    return jax.vmap(target.log_density_and_score)(shard(x, "samples"))


def is_in_turn(target: Target) -> bool:
    """Whether one point after another is quicker than all at once: on a CPU, if the arrays of one
    point are larger than the data.

    A network on thousands of rows is such a target. Its arrays stay in the cache for one point, and
    leave it for several. Where the data are larger, points share the reading of them.
    """
    if (target.density.num_rows or 0) < _FEW_ROWS or platform() != "cpu" or has_mesh():
        return False
    point = jax.ShapeDtypeStruct((target.dim,), jnp.result_type(float))
    largest = max(_sizes(jax.make_jaxpr(target.log_density)(point).jaxpr), default=0)
    arrays = jax.tree.leaves(eqx.filter(target.density, eqx.is_array))
    data = max((array.size for array in arrays), default=0)
    return largest > max(data, _LARGE)


def _sizes(jaxpr: Any) -> Iterator[int]:
    """The numbers in each array that a program computes, those of its inner programs included."""
    for equation in jaxpr.eqns:
        yield from (out.aval.size for out in equation.outvars if hasattr(out.aval, "size"))
        for inner in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                yield from _sizes(getattr(inner, "jaxpr", inner))


def _is_program(value: Any) -> bool:
    return hasattr(value, "eqns")
