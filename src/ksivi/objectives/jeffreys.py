"""Jeffreys' divergence: SIVI's bound on the family's own draws, and maximum likelihood on points."""

from typing import NamedTuple

import jax

from .base import AbstractObjective
from .likelihood import Draws as PointDraws
from .likelihood import MaximumLikelihood
from .sivi import SIVI
from .sivi import Draws as OwnDraws


class Draws(NamedTuple):
    """The randomness of one step, of either half."""

    own: OwnDraws
    points: PointDraws


class Jeffreys(AbstractObjective):
    r"""Minimises ½ KL(q‖p) + ½ KL(points‖q), but for constants.

    The first half alone keeps q where p is large and leaves its tails thin; the second, on points that are near to
    draws of p, covers them, and is blurred by its finite K. Together they do neither. The points may be q's own draws,
    resampled by their importance weights.

    **Arguments:**

    - `reverse`: SIVI's bound.
    - `forward`: maximum likelihood on the points.

    ```python
    points = jax.random.normal(jax.random.key(0), (1_000, 2))
    objective = ksivi.Jeffreys(ksivi.SIVI(64, 256), ksivi.MaximumLikelihood(points, 64, 512))
    ```
    """

    reverse: SIVI
    forward: MaximumLikelihood

    def init(self, key, target, family) -> None:
        self.reverse.init(key, target, family)
        self.forward.init(key, target, family)

    def draw(self, key, target, family) -> Draws:
        own_key, points_key = jax.random.split(key)
        return Draws(self.reverse.draw(own_key, target, family), self.forward.draw(points_key, target, family))

    def prepare(self, state, draws, target, family, step):
        return state

    def loss(self, family, state, draws, target, step):
        reverse, records = self.reverse.loss(family, None, draws.own, target, step)
        forward, _ = self.forward.loss(family, None, draws.points, target, step)
        return 0.5 * (reverse + forward), records

    @property
    def score_evals(self) -> int:
        return self.reverse.score_evals
