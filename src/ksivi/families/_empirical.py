"""Stored draws: the result of particle methods and Markov chains."""

from typing import ClassVar, Literal

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.registry import register
from ._family import AbstractFamily


@register
class Empirical(AbstractFamily):
    """The uniform distribution on finitely many points."""

    has_density: ClassVar[Literal[False]] = False

    points: Float[Array, "m d"]

    @property
    def dim(self) -> int:
        return self.points.shape[1]

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n of the m points, in random order. No point is drawn twice before all are drawn once."""
        rounds = -(-n // len(self.points))
        order = jax.vmap(lambda k: jax.random.permutation(k, len(self.points)))(
            jax.random.split(key, rounds)
        )
        return self.points[order.reshape(-1)[:n]]

    def log_prob(
        self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int
    ) -> Float[Array, " n"]:
        raise ValueError(
            "log_prob needs a sampler with a density; this posterior is a set of stored draws"
        )
