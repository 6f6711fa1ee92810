"""Maximum likelihood: fits a semi-implicit family to points, such as rough draws of the target."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.checks import as_count, as_samples
from ._objective import AbstractObjective


class LikelihoodDraws(NamedTuple):
    """The randomness of one step: mixing variables and indices of points."""

    z: Float[Array, "m k"]
    chosen: Int[Array, " n"]


class MaximumLikelihood(AbstractObjective):
    r"""Minimises −E log 1/K Σₖ q(x|zₖ) over points x, which is KL(points‖q) up to a constant.

    Use it to start from rough draws of the target: reverse KL and KSD keep the modes of a family
    and rarely find others. The target is not evaluated, so the recorded Stein ratio is 0.

    **Arguments:**

    - `points`: one point per row, in the coordinates of the (whitened) target.
    - `num_samples`: the number of points per step.
    - `num_mixing`: K. A larger K makes the bound tighter. Few dimensions need hundreds; in many
        dimensions the bound stays loose.

    ```python
    points = jax.random.normal(jax.random.key(0), (1_000, 2))
    objective = ksivi.MaximumLikelihood(points, num_mixing=512)
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
            raise ValueError(
                f"points must have the family's dim {family.dim}, got {self.points.shape[1]}"
            )

    def draw(self, key, target, family) -> LikelihoodDraws:
        mixing_key, points_key = jax.random.split(key)
        z = family.mixing.sample(mixing_key, self.num_mixing, family.dtype)
        chosen = jax.random.randint(points_key, (self.num_samples,), 0, len(self.points))
        return LikelihoodDraws(z, chosen)

    def loss(self, family, state, draws, target, step):
        log_q = family.log_mixture(self.points[draws.chosen], draws.z)
        return -jnp.mean(log_q), {"stein_ratio": jnp.zeros((), log_q.dtype)}

    @property
    def score_evals(self) -> int:
        return 0
