"""Jeffreys' divergence: both KL divergences between a family and its target, in any shares."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float, PyTree

from .._core.checks import as_positive, describe
from ._likelihood import MaximumLikelihood
from ._objective import AbstractObjective
from ._sivi import SIVI
from ._sivi import Draws as ReverseDraws
from ._wake import Wake


class Draws(NamedTuple):
    """The randomness of one step, of either half."""

    reverse: ReverseDraws
    forward: PyTree


class Jeffreys(AbstractObjective):
    r"""Minimises (1 − a) KL(q‖p) + a KL(p‖q), but for constants; a = ½ is Jeffreys' divergence, but for its factor.

    The first alone keeps q where p is large and leaves its tails thin and its narrow places empty; the second
    covers them, but a few draws anywhere cost it nothing. Together they do neither. The first is recorded as `bound`:
    it ranks fits, where the second, taken over what a fit has found, does not.

    **Arguments:**

    - `reverse`: SIVI's bound.
    - `forward`: `Wake`, on q's own draws and their weights, or `MaximumLikelihood`, on points near to draws of p.
    - `share`: a.

    ```python
    objective = ksivi.Jeffreys(ksivi.SIVI(64, 256), ksivi.Wake(64, 256))
    ```
    """

    reverse: SIVI
    forward: Wake | MaximumLikelihood
    share: Float[Array, ""]

    def __init__(self, reverse: SIVI, forward: Wake | MaximumLikelihood, share: float | Array = 0.5):
        if not isinstance(reverse, SIVI):
            raise ValueError(f"reverse must be a ksivi.SIVI, got {describe(reverse)}")
        if not isinstance(forward, Wake | MaximumLikelihood):
            raise ValueError(f"forward must be a ksivi.Wake or a ksivi.MaximumLikelihood, got {describe(forward)}")
        self.reverse, self.forward = reverse, forward
        self.share = as_positive(share, "share")
        if not isinstance(share, jax.core.Tracer) and share >= 1:
            raise ValueError(f"share must be between 0 and 1, got {share}")
        if reverse.annealing is not None:
            raise ValueError("reverse must have no annealing: the other divergence is to the target itself")

    def init(self, key, target, family) -> None:
        self.reverse.init(key, target, family)
        self.forward.init(key, target, family)

    def draw(self, key, target, family) -> Draws:
        reverse_key, forward_key = jax.random.split(key)
        return Draws(self.reverse.draw(reverse_key, target, family), self.forward.draw(forward_key, target, family))

    def prepare(self, state, draws, target, family, step):
        return state

    def loss(self, family, state, draws, target, step):
        reverse, records = self.reverse.loss(family, None, draws.reverse, target, step)
        forward, _ = self.forward.loss(family, None, draws.forward, target, step)
        return (1 - self.share) * reverse + self.share * forward, records | {"bound": reverse}

    @property
    def score_evals(self) -> int:
        return self.reverse.score_evals + self.forward.score_evals
