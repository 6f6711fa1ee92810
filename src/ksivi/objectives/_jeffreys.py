"""Jeffreys' divergence: a weighted sum of both KL divergences between a family and its target."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Float, PyTree

from .._core.checks import as_fraction, describe
from ._likelihood import MaximumLikelihood
from ._objective import AbstractObjective
from ._sivi import SIVI, SIVIDraws
from ._wake import Wake


class JeffreysDraws(NamedTuple):
    """The randomness of one step, for both divergences."""

    reverse: SIVIDraws
    forward: PyTree


class Jeffreys(AbstractObjective):
    r"""Minimises (1 − a) KL(q‖p) + a KL(p‖q) up to constants. a = ½ is half Jeffreys' divergence.

    KL(q‖p) alone keeps q where p is large, with thin tails and without narrow regions. KL(p‖q)
    alone covers them, but allows a few draws anywhere. The sum has neither fault. The first
    divergence is recorded as `bound` and can rank fits. The second cannot, since it only sees what
    a fit has found.

    **Arguments:**

    - `reverse`: `SIVI`, a bound of KL(q‖p).
    - `forward`: `Wake`, which uses weighted draws of q, or `MaximumLikelihood`, which uses points
        that are close to draws of p.
    - `share`: a, between 0 and 1.

    ```python
    objective = ksivi.Jeffreys(ksivi.SIVI(64, 256), ksivi.Wake(64, 256))
    ```
    """

    reverse: SIVI
    forward: Wake | MaximumLikelihood
    share: Float[Array, ""]

    def __init__(
        self, reverse: SIVI, forward: Wake | MaximumLikelihood, share: float | Array = 0.5
    ):
        if not isinstance(reverse, SIVI):
            raise ValueError(f"reverse must be a ksivi.SIVI, got {describe(reverse)}")
        if not isinstance(forward, Wake | MaximumLikelihood):
            raise ValueError(
                "forward must be a ksivi.Wake or a ksivi.MaximumLikelihood, got "
                f"{describe(forward)}"
            )
        self.reverse, self.forward = reverse, forward
        self.share = as_fraction(share, "share")
        if reverse.annealing is not None:
            raise ValueError(
                "reverse must have no annealing, because forward uses the target itself"
            )

    def init(self, key, target, family) -> None:
        self.reverse.init(key, target, family)
        self.forward.init(key, target, family)

    def draw(self, key, target, family) -> JeffreysDraws:
        reverse_key, forward_key = jax.random.split(key)
        return JeffreysDraws(
            self.reverse.draw(reverse_key, target, family),
            self.forward.draw(forward_key, target, family),
        )

    def loss(self, family, state, draws, target, step):
        reverse, records = self.reverse.loss(family, None, draws.reverse, target, step)
        forward, _ = self.forward.loss(family, None, draws.forward, target, step)
        return (1 - self.share) * reverse + self.share * forward, records | {"bound": reverse}

    @property
    def score_evals(self) -> int:
        return self.reverse.score_evals + self.forward.score_evals
