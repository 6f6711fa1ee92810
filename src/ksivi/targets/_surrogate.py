"""A log density from some of its rows, with a correction around a point."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree, Scalar, Shaped

from .._core.sharding import axis_size, has_axis, on_each_part
from ._density import MANY_ROWS, AbstractDensity, Point

CHUNK = 256
"""The number of rows that are evaluated together. Many points times a chunk fit into the cache."""
_ROUNDING, _MOST_ROUNDING = 6e-8, 0.015
"""The relative error of a single-precision sum, and the largest error in nats."""

Values = tuple[Scalar, Point]


class Surrogate(AbstractDensity):
    r"""A log density from chunks C of its rows, relative to a point a and corrected around it.

        f̃(x) = Σ_C w_C [f_C(x) − f_C(a)] + gᵀδ + ½ δᵀBδ,   δ = x − a

    f_C is the unbiased estimate of f from the rows of C. With all rows, f̃(x) is f(x) − f(a). With
    some rows, a slope g and a bend B can give f̃ the gradient and the Hessian of f at a; the error is
    then of third order in δ.

    f can be as large as the number of rows, and float32 has seven digits. If that is not enough,
    differences are integrals of scores, by Simpson's rule, whose error is of fifth order in δ:

        f_C(x) − f_C(a) = ∫₀¹ ∇f_C(a + tδ)ᵀδ dt ≈ [∇f_C(a) + 4 ∇f_C(a + δ/2) + ∇f_C(x)]ᵀδ / 6

    **Attributes:**

    - `rows`: by chunk, what `on_rows` of the density takes: indices of rows, or the rows.
    - `weights`: w_C. They sum to 1.
    - `is_relative`: 1; or 0 for f_C(x) in place of f_C(x) − f_C(a).
    - `by_scores`: whether differences are integrals of scores.
    """

    density: AbstractDensity
    rows: PyTree[Shaped[Array, "q c ..."]]
    weights: Float[Array, " q"]
    point: Point
    slope: Point
    bend: Float[Array, "d d"] | None
    is_relative: Scalar
    by_scores: bool = eqx.field(static=True, default=False)

    @property
    def has_many_rows(self):
        num_chunks, length = jax.tree.leaves(self.rows)[0].shape[:2]
        return num_chunks * length >= MANY_ROWS

    def value(self, x):
        return self.value_and_score(x)[0]

    def value_and_score(self, x):
        on_chunk = self._by_scores if self.by_scores else self._by_values
        share = jax.tree.map(lambda one: one / axis_size("data"), self._corrections(x))

        def add(total: Values, chunk: tuple[PyTree, Array]) -> tuple[Values, None]:
            rows, weight = chunk
            value, score = on_chunk(self.density.on_rows(rows), x)
            return (total[0] + weight * value, total[1] + weight * score), None

        on_part = lambda *chunks: lax.scan(add, share, chunks)[0]  # noqa: E731
        value, score = on_each_part(on_part, self.rows, self.weights)
        return jnp.sum(value, axis=0), jnp.sum(score, axis=0)

    def score(self, x):
        return self.value_and_score(x)[1]

    def _by_values(self, density: AbstractDensity, x: Point) -> Values:
        value, score = density.value_and_score(x)
        there = lax.stop_gradient(density.value(self.point))
        return value - jnp.where(self.is_relative > 0, there, 0), score

    def _by_scores(self, density: AbstractDensity, x: Point) -> Values:
        step = x - self.point
        here, middle = density.score(x), density.score(self.point + 0.5 * step)
        there = lax.stop_gradient(density.score(self.point))
        return jnp.sum((there + 4 * middle + here) * step) / 6, here

    def _corrections(self, x: Point) -> Values:
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
        """By values and without corrections: these, and integrals, are right near the point."""
        bend = None if self.bend is None else jnp.zeros_like(self.bend)
        slope = jnp.zeros_like(self.slope)
        return dataclasses.replace(self, slope=slope, bend=bend, by_scores=False)


def surrogate(
    density: AbstractDensity,
    rows: Int[np.ndarray, "q c"],
    weights: Float[np.ndarray, " q"],
    point: Float[np.ndarray, " d"],
    *,
    is_bent: bool,
    is_relative: bool = True,
    by_scores: bool = False,
) -> Surrogate:
    """A log density from these rows, without corrections.

    **Arguments:**

    - `is_bent`: whether there is room for a bend. It takes dim² numbers.
    """
    dtype, dim = jnp.result_type(float), len(point)
    if missing := -len(rows) % axis_size("data"):  # devices have equally many chunks
        rows = np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)])
        weights = np.append(weights, np.zeros(missing))
    indices = (density, jnp.asarray(rows, jnp.int32))
    density, chunks = density.divided(rows) if has_axis("data") else indices
    return Surrogate(
        density,
        chunks,
        jnp.asarray(weights, dtype),
        jnp.asarray(point, dtype),
        jnp.zeros(dim, dtype),
        jnp.zeros((dim, dim), dtype) if is_bent else None,
        jnp.asarray(float(is_relative), dtype),
        by_scores,
    )


def needs_scores(num_rows: int, num_chosen: int) -> bool:
    r"""Whether values are too inexact for a density of `num_rows` from some rows.

    The sums over q chunks have errors of about ε N/√q nats.
    """
    is_single = jnp.result_type(float) == jnp.float32
    return is_single and _ROUNDING * num_rows * (CHUNK / num_chosen) ** 0.5 > _MOST_ROUNDING
