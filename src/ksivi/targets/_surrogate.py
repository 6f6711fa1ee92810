"""A log density from some of its rows, with a correction around a point."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from ._density import AbstractDensity, Point

CHUNK = 256
"""The number of rows that are evaluated together. Many points times a chunk fit into the cache."""
_ROUNDING, _MOST_ROUNDING = 6e-8, 0.015
"""The relative error of a single-precision sum, and the largest error in nats."""

Indices = Int[np.ndarray, " n"]


class Surrogate(AbstractDensity):
    r"""A log density from chunks C of its rows, relative to a point a and corrected around it.

        f̃(x) = Σ_C w_C [f_C(x) − f_C(a)] + gᵀδ + ½ δᵀBδ,   δ = x − a

    f_C is the unbiased estimate of f from the rows of C. With all rows, f̃(x) is f(x) − f(a). With
    some rows, a slope g and a bend B can give f̃ the gradient and the Hessian of f at a; the error is
    then of third order in δ.

    f can be as large as the number of rows, and float32 has seven digits. So differences are taken
    before sums: a chunk consists of groups, and each group's difference is computed alone.

    **Attributes:**

    - `rows`: indices of rows, by chunk and by group.
    - `weights`: w_C. They sum to 1.
    - `is_relative`: 1; or 0 for f_C(x) in place of f_C(x) − f_C(a).
    """

    density: AbstractDensity
    rows: Int[Array, "q n g"]
    weights: Float[Array, " q"]
    point: Point
    slope: Point
    bend: Float[Array, "d d"] | None
    is_relative: Scalar

    def value(self, x):
        return self.value_and_score(x)[0]

    def value_and_score(self, x):
        def add(total, chunk):
            rows, weight = chunk
            value, score = jax.value_and_grad(self._on_chunk)(x, rows)
            return (total[0] + weight * value, total[1] + weight * score), None

        first = self._corrections(x)
        return lax.scan(add, first, (self.rows, self.weights))[0]

    def score(self, x):
        return self.value_and_score(x)[1]

    def _on_chunk(self, x: Point, rows: Int[Array, "n g"]) -> Scalar:
        if len(rows) == 1:
            return self._on_group(x, rows[0])
        return jnp.mean(jax.vmap(lambda group: self._on_group(x, group))(rows))

    def _on_group(self, x: Point, rows: Int[Array, " g"]) -> Scalar:
        density = self.density.on_rows(rows)
        there = lax.stop_gradient(density.value(self.point))
        return density.value(x) - jnp.where(self.is_relative > 0, there, 0)

    def _corrections(self, x: Point) -> tuple[Scalar, Point]:
        step = x - self.point
        bent = jnp.zeros_like(x) if self.bend is None else self.bend @ step
        return jnp.sum((self.slope + 0.5 * bent) * step), self.slope + bent

    def corrected(
        self, slope: Float[np.ndarray, " d"], bend: Float[np.ndarray, "d d"] | None
    ) -> "Surrogate":
        """The same rows with this slope and this bend."""
        dtype = self.point.dtype
        bent = None if bend is None else jnp.asarray(bend, dtype)
        return dataclasses.replace(self, slope=jnp.asarray(slope, dtype), bend=bent)

    @property
    def far(self) -> "Surrogate":
        """Without corrections, which are right near the point alone."""
        bend = None if self.bend is None else jnp.zeros_like(self.bend)
        return dataclasses.replace(self, slope=jnp.zeros_like(self.slope), bend=bend)


def surrogate(
    density: AbstractDensity,
    rows: Int[np.ndarray, "q n g"],
    weights: Float[np.ndarray, " q"],
    point: Float[np.ndarray, " d"],
    *,
    is_bent: bool,
    is_relative: bool = True,
) -> Surrogate:
    """A log density from these rows, without corrections.

    **Arguments:**

    - `is_bent`: whether there is room for a bend. It takes dim² numbers.
    """
    dtype, dim = jnp.result_type(float), len(point)
    return Surrogate(
        density,
        jnp.asarray(rows, jnp.int32),
        jnp.asarray(weights, dtype),
        jnp.asarray(point, dtype),
        jnp.zeros(dim, dtype),
        jnp.zeros((dim, dim), dtype) if is_bent else None,
        jnp.asarray(float(is_relative), dtype),
    )


def group_size(num_rows: int, num_chosen: int) -> int:
    r"""The rows of a group, such that rounding is small in a density of `num_rows` from some rows.

    With G groups of g rows the error is about ε N/√G = ε N √(g/m) nats.
    """
    if jnp.result_type(float) == jnp.float64:
        return CHUNK
    most = num_chosen * (_MOST_ROUNDING / (_ROUNDING * num_rows)) ** 2
    return int(2 ** np.clip(np.floor(np.log2(most)), 0, np.log2(CHUNK)))


def grouped(rows: Indices, size: int) -> Int[np.ndarray, "q n g"]:
    """Rows in chunks of 256, in groups of this size."""
    return rows.reshape(-1, CHUNK // size, size)
