"""Stored draws: what particle methods and chains leave behind."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core import archive


@archive.register
class Empirical(eqx.Module):
    """The uniform distribution on finitely many points."""

    points: Float[Array, "m d"]

    @property
    def dim(self) -> int:
        return self.points.shape[1]

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n of the points, without replacement as far as they go.

        Each round takes the points in a new random order, so that up to m draws hold no point twice.
        """
        rounds = -(-n // len(self.points))
        order = jax.vmap(lambda k: jax.random.permutation(k, len(self.points)))(jax.random.split(key, rounds))
        return self.points[order.reshape(-1)[:n]]

    def log_prob(self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int) -> Float[Array, " n"]:
        raise ValueError("log_prob needs a sampler with a density; this posterior is a set of stored draws")
