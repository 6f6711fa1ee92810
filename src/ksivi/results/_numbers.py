"""The numbers of a posterior: their names on the model's own scale, and what each depends on."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ..targets import Layout, Support
from ._names import element_name

Points = Float[np.ndarray, "n d"]


@dataclasses.dataclass(frozen=True)
class Numbers:
    """One number after another: each element of each parameter, constrained.

    **Attributes:**

    - `layout`, `supports`: those of a posterior.
    """

    layout: Layout
    supports: tuple[Support, ...] | None

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each, such as `tau` or `theta[2]`."""
        return tuple(
            element_name(site.name, place)
            for site in self._sites
            for place in np.ndindex(*site.value_shape)
        )

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """The name of the parameter of each number, such as `theta` of `theta[2]`."""
        return tuple(site.name for site in self._sites for _ in range(math.prod(site.value_shape)))

    @functools.cached_property
    def spans(self) -> Int[np.ndarray, "p 2"]:
        """The coordinates from which each number is computed: the first, and one after the last.

        Every element of a simplex, or of another vector or matrix with a common support, is
        computed from all coordinates of that vector or matrix.
        """
        parts, offset = [np.zeros((0, 2), int)], 0
        for site in self._sites:
            parts.append(offset + site.spans())
            offset += math.prod(site.shape)
        return np.concatenate(parts)

    def touched(
        self, coordinates: Int[np.ndarray, " k"], fewest: int = 1
    ) -> Bool[np.ndarray, " p"]:
        """Which numbers depend on any of these coordinates, or on at least so many of them."""
        before = np.concatenate([[0], np.cumsum(self._is_one_of(coordinates))])
        return before[self.spans[:, 1]] - before[self.spans[:, 0]] >= fewest

    def shared(
        self, coordinates: Int[np.ndarray, " k"], chosen: Bool[np.ndarray, " p"]
    ) -> Int[np.ndarray, " m"]:
        """Those of these coordinates that any of the chosen numbers depends on."""
        begin, end = (np.bincount(x, minlength=self.dim + 1) for x in self.spans[chosen].T)
        is_needed = np.cumsum(begin - end)[:-1] > 0
        return np.flatnonzero(self._is_one_of(coordinates) & is_needed)

    @functools.cached_property
    def dim(self) -> int:
        """The number of coordinates."""
        return sum(math.prod(shape) for _, shape in self.layout)

    def _is_one_of(self, coordinates: Int[np.ndarray, " k"]) -> Bool[np.ndarray, " d"]:
        return np.isin(np.arange(self.dim), coordinates)

    def of(self, x: Points) -> Float[np.ndarray, "n p"]:
        """The numbers at unconstrained points, one column each."""
        parts, offset = [np.zeros((len(x), 0))], 0
        for site in self._sites:
            size = math.prod(site.shape)
            parts.append(site.values(x[:, offset : offset + size]))
            offset += size
        return np.concatenate(parts, axis=1)

    @functools.cached_property
    def _sites(self) -> list["_Site"]:
        supports = self.supports or (None,) * len(self.layout)
        pairs = zip(self.layout, supports, strict=True)
        return [_Site(name, shape, support) for (name, shape), support in pairs]


@dataclasses.dataclass(frozen=True)
class _Site:
    """One parameter: its name, its unconstrained shape and its support."""

    name: str
    shape: tuple[int, ...]
    support: Support | None

    @property
    def is_elementwise(self) -> bool:
        return self.support is None or self.support.is_elementwise

    @functools.cached_property
    def value_shape(self) -> tuple[int, ...]:
        if self.support is None or self.support.is_elementwise:
            return self.shape
        found = jax.eval_shape(
            self.support, jax.ShapeDtypeStruct(self.shape, jnp.result_type(float))
        )
        return tuple(found.shape)

    def spans(self) -> Int[np.ndarray, "p 2"]:
        size = math.prod(self.shape)
        if self.is_elementwise:
            return np.arange(size)[:, None] + np.array([0, 1])
        # The last axis of the coordinates makes one vector or matrix; the axes before count them.
        num_vectors, width = math.prod(self.shape[:-1]), self.shape[-1]
        starts = np.arange(num_vectors) * width
        of_each = math.prod(self.value_shape) // max(num_vectors, 1)
        return np.repeat(np.column_stack([starts, starts + width]), of_each, axis=0)

    @np.errstate(all="ignore")  # a draw far out may overflow
    def values(self, u: Points) -> Float[np.ndarray, "n p"]:
        if self.support is None:
            return u
        shaped = u.reshape(len(u), *self.shape)
        return self.support.on_host(shaped).reshape(len(u), -1)
