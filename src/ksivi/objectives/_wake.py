"""Wake: minimises KL(p‖q) with weighted draws of the family."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_count, as_positive
from .._core.numerics import log_mean_exp, truncated_weights
from ..families import SemiImplicit
from ._objective import AbstractObjective, auxiliary


class WakeDraws(NamedTuple):
    """The randomness of one step: mixing variables, noise, auxiliary z."""

    z: Float[Array, "n k"]
    xi: Float[Array, "n d"]
    others: Float[Array, "m k"]


class Wake(AbstractObjective):
    r"""Minimises KL(p‖q) = −E_p log q(x) up to a constant, without draws of p.

    Points come from q with a wider mixing, m(z) = ½ q(z) + ½ q(z/s)/sᵏ, and have weights w:

        x ~ m(x) = ∫ q(x|z) m(z) dz,   w = p(x) / m(x),   loss = −Σ w log q(x) / Σ w

    x and w are held constant. m(x) and q(x) are estimated by means of q(x|zₖ) and of
    q(x|zₖ) q(zₖ)/m(zₖ) over the z that made x and K draws of m(z). KL(q‖p), which `SIVI` minimises,
    leaves out tails and narrow regions. KL(p‖q) covers them as far as the wider mixing reaches; its
    σ is slightly too wide for finite K. Alone it drifts if the weights are poor, so combine both
    with `Jeffreys`. It uses all rows of a target with data, because a minibatch would give the
    weights of another posterior.

    **Arguments:**

    - `num_samples`: the number of points per step.
    - `num_mixing`: K, the number of auxiliary z, which the points of a step share.
    - `scale`: s.

    ```python
    objective = ksivi.Jeffreys(ksivi.SIVI(64, 256), ksivi.Wake(64, 256))
    ```

    Reference: Bornschein and Bengio, Reweighted Wake-Sleep, ICLR 2015, for models with latent
    variables.
    """

    num_samples: int = eqx.field(static=True)
    num_mixing: int = eqx.field(static=True)
    scale: Float[Array, ""]

    def __init__(self, num_samples: int = 64, num_mixing: int = 256, *, scale: float = 1.5):
        self.num_samples = as_count(num_samples, "num_samples", minimum=2)
        self.num_mixing = as_count(num_mixing, "num_mixing")
        self.scale = as_positive(scale, "scale")

    def init(self, key, target, family) -> None:
        if not target.has_log_density:
            raise ValueError("Wake needs log-density values, but this target has only a score")
        jax.eval_shape(lambda key: family.mixing.log_prob(family.mixing.sample(key, 1)[0]), key)

    def draw(self, key, target, family) -> WakeDraws:
        z_key, xi_key, mixing_key = jax.random.split(key, 3)
        wide = family.mixing.widened(self.scale)
        z = wide.sample(z_key, self.num_samples, family.dtype)
        xi = family.normal(xi_key, (self.num_samples, family.dim), family.dtype)
        others = wide.sample(mixing_key, self.num_mixing, family.dtype)
        return WakeDraws(z, xi, others)

    def loss(self, family, state, draws, target, step):
        x = lax.stop_gradient(family.transport((draws.z, draws.xi))[0])
        log_p, score = jax.vmap(target.log_density_and_score)(x)
        # A point with p = 0 has no weight, but in the gradient 0 · ∞ would be NaN: replace it by 0.
        x = jnp.where(jnp.isfinite(log_p)[:, None], x, 0)
        parts = family.log_parts(x, draws.z, draws.others)
        ratios = jax.vmap(lambda z: self._log_ratio(family, z))
        of_others = jnp.broadcast_to(ratios(draws.others)[None], (len(x), self.num_mixing))
        log_ratios = jnp.concatenate([ratios(draws.z)[:, None], of_others], axis=1)
        log_m, log_q = log_mean_exp(parts), log_mean_exp(parts + log_ratios)
        weights = truncated_weights(lax.stop_gradient(log_p - log_m))
        return -jnp.sum(weights * log_q), auxiliary(x, score, x, None)

    def _log_ratio(self, family: SemiImplicit, z: Float[Array, " k"]) -> Scalar:
        """log q(z) / m(z)."""
        return family.mixing.log_prob(z) - family.mixing.widened(self.scale).log_prob(z)

    @property
    def score_evals(self) -> int:
        return self.num_samples
