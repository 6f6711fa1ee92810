"""Maximum likelihood: a semi-implicit family fitted to points, such as rough draws of the target."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.checks import as_count, as_samples
from ._objective import AbstractObjective


class Draws(NamedTuple):
    """The randomness of one step: mixing variables, and which points."""

    z: Float[Array, "m k"]
    chosen: Int[Array, " n"]


class MaximumLikelihood(AbstractObjective):
    r"""Minimises −E log 1/K Σₖ q(x|zₖ) over points x: KL(points‖q) but for a constant, which covers all of them.

    A start for the other objectives, where there are rough draws to start from: reverse KL and KSD keep the modes that
    a family has, and rarely find others. The target is not evaluated, so that the recorded Stein ratio is 0.

    **Arguments:**

    - `points`: one a row, in the target's own coordinates, or in its whitened ones where it is whitened.
    - `num_samples`: points a step.
    - `num_mixing`: K. The bound is the tighter the more there are: few dimensions need hundreds, many are out of reach.

    ```python
    objective = ksivi.MaximumLikelihood(jax.random.normal(jax.random.key(0), (1_000, 2)), num_mixing=512)
    ```
    """

    points: Float[Array, "p d"]
    num_samples: int = eqx.field(static=True)
    num_mixing: int = eqx.field(static=True)

    def __init__(self, points: Float[Array, "p d"], num_samples: int = 100, num_mixing: int = 500):
        self.points = as_samples(points, "points")
        self.num_samples = as_count(num_samples, "num_samples", minimum=2)
        self.num_mixing = as_count(num_mixing, "num_mixing")

    def init(self, key, target, family) -> None:
        if self.points.shape[1] != family.dim:
            raise ValueError(f"points must have the family's dim {family.dim}, got {self.points.shape[1]}")

    def draw(self, key, target, family) -> Draws:
        mixing_key, points_key = jax.random.split(key)
        z = family.mixing.sample(mixing_key, self.num_mixing, family.dtype)
        chosen = jax.random.randint(points_key, (self.num_samples,), 0, len(self.points))
        return Draws(z, chosen)

    def prepare(self, state, draws, target, family, step):
        return state

    def loss(self, family, state, draws, target, step):
        log_q = family.log_mixture(self.points[draws.chosen], draws.z)
        return -jnp.mean(log_q), {"stein_ratio": jnp.zeros((), log_q.dtype)}

    @property
    def score_evals(self) -> int:
        return 0
