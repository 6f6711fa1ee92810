"""Log densities from a score alone, by integrals along lines."""

import jax.numpy as jnp
import numpy as np
from jax import vmap
from jaxtyping import Array, Float

from ._density import AbstractDensity, Point


class LineDensity(AbstractDensity):
    r"""log p(x) − log p(a) = ∫₀¹ ⟨s(a + t (x − a)), x − a⟩ dt, by Gauss and Legendre's rule.

    It is exact, up to rounding, for scores that are polynomials of a degree below twice the number
    of nodes. If the score is not a gradient, the value depends on a.

    **Arguments:**

    - `density`: a density whose score is used.
    - `start`: a.
    - `num_nodes`: the evaluations of the score for a value.
    """

    density: AbstractDensity
    start: Point
    nodes: Float[Array, " m"]
    weights: Float[Array, " m"]

    def __init__(self, density: AbstractDensity, start: Point, num_nodes: int):
        nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
        self.density, self.start = density, start
        self.nodes = jnp.asarray((nodes + 1) / 2, start.dtype)
        self.weights = jnp.asarray(weights / 2, start.dtype)

    @property
    def given_as(self) -> str:
        return self.density.given_as

    def explain(self, x):
        return self.density.explain(x)

    @property
    def calls_python(self) -> bool:
        return self.density.calls_python

    def value(self, x):
        step = x - self.start
        along = vmap(lambda t: self.density.score(self.start + t * step) @ step)(self.nodes)
        return self.weights @ along

    def value_and_score(self, x):
        return self.value(x), self.score(x)

    def score(self, x):
        return self.density.score(x)
