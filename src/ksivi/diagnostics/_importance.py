"""Importance weights, the ELBO and the evidence of a sampler with a density."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_positive, as_single_key
from .._core.compile import one_shot
from .._core.mixtures import Mixture
from .._core.numerics import generator, new_key, truncated_weights
from .._core.warped import Halves, Warped
from ..families import GaussianMixture, SemiImplicit
from ..results import Posterior
from ..targets import Affine, Evaluator, Target
from ._checks import require_fit
from ._differences import Difference, difference

_BLOCK = 100
"""Draws per block.

The draws of a block share their auxiliary z; standard errors come from independent blocks.
"""

WIDENING = 1.5
"""Of the weights that decide, in `ksivi.fit` and in `compare_models`."""

Blocks = tuple[Float[np.ndarray, "b m d"], Float[np.ndarray, "b m"]]


@dataclasses.dataclass(frozen=True)
class Importance:
    """Draws from q with their log weights log p(x) − log q̂(x), and estimates from the weights.

    **Attributes:**

    - `draws`, `log_weights`: in the target's coordinates.
    - `elbo`, `elbo_error`: the mean log weight, which is a lower bound of the log evidence, and its
        standard error.
    - `log_evidence`, `log_evidence_error`: the log of the mean weight, and its standard error. The
        mean weight is an unbiased estimate of ∫ p for every `num_mixing`. If few weights dominate,
        both numbers are unreliable.
    - `num_mixing`: the number of auxiliary z for each draw, besides the draw's own z.
    """

    draws: Float[np.ndarray, "n d"]
    log_weights: Float[np.ndarray, " n"]
    elbo: float
    elbo_error: float
    log_evidence: float
    log_evidence_error: float
    num_mixing: int

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The weights, normalised to sum to 1."""
        shifted = np.exp(self.log_weights - self.log_weights.max())
        return shifted / shifted.sum()

    @property
    def difference(self) -> Difference:
        """Between the draws as they are and as the weights, truncated, would have them."""
        return difference(self.draws, self.draws, truncated_weights(self.log_weights))

    @property
    def difference_error(self) -> float:
        """About the standard error of a shift: √((n / effective − 1) / n)."""
        n = len(self.log_weights)
        return float(np.sqrt((n / self.effective_sample_size - 1) / n))

    def resampled(self, key: PRNGKeyArray) -> tuple[Float[np.ndarray, "n d"], float]:
        """As many draws, resampled by their truncated weights, and their effective sample size."""
        weights = truncated_weights(self.log_weights)
        chosen = generator(key).choice(len(weights), len(weights), p=weights / weights.sum())
        return self.draws[chosen], float(1 / np.sum(weights**2))

    @property
    def effective_sample_size(self) -> float:
        """1 / Σ w²."""
        return float(1 / np.sum(self.weights**2))


def importance(
    key: PRNGKeyArray,
    target: Target,
    posterior: Posterior,
    *,
    num_samples: int = 10_000,
    num_mixing: int = 1_000,
    widening: float = 1.0,
) -> Importance:
    r"""Importance weights w = p(x) / q̂(x) of a sampler's draws.

        q̂(x) = 1/(K+1) Σₖ q(x|zₖ),   ELBO = E log w ≤ log ∫ p,   evidence = E w = ∫ p

    One of the zₖ is the z that made x. Both equations hold for every K. The ELBO rises to its exact
    value as K grows. The density of a mixture of Gaussians is known, and K plays no part.

    **Arguments:**

    - `target`: must have a log density, not only a score.
    - `posterior`: a trained sampler or a mixture. Stored draws have no density.
    - `num_samples`: the number of draws, rounded up to hundreds. At least 1,000 are drawn, to
        estimate the errors.
    - `num_mixing`: K.
    - `widening`: s. Above 1, half of the draws come from a mixing distribution s times as wide
        (`families.WideMixing`), or from Gaussians s times as wide. They reach tails and narrow
        regions that the sampler misses, so that the weights have lighter tails. The ELBO is then the wider sampler's.

    ```python
    result = ksivi.diagnostics.importance(
        jax.random.key(2), target, fit.posterior, num_samples=1_000
    )
    result.log_evidence, result.log_evidence_error
    ```
    """
    require_fit(target, posterior, "importance")
    if not target.has_log_density:
        raise ValueError("target must have a log density, but this target has only a score")
    as_count(num_samples, "num_samples", minimum=2)
    num_mixing = as_count(num_mixing, "num_mixing")
    rng, wide = generator(as_single_key(key)), float(as_positive(widening, "widening"))
    return weighted(rng, Evaluator(target), posterior, num_samples, num_mixing, wide)


def weighted(
    rng: np.random.Generator,
    evaluate: Evaluator,
    posterior: Posterior,
    num_samples: int,
    num_mixing: int,
    widening: float,
) -> Importance:
    """`importance` with an evaluator of the target. Only the evaluator's program has a target."""
    draws, log_q = _proposed(
        rng, posterior, max(10, -(-num_samples // _BLOCK)), num_mixing, widening
    )
    log_p = evaluate.log_density(draws.reshape(-1, posterior.dim))
    return _summarise(draws, log_p.reshape(log_q.shape) - log_q, num_mixing)


def _proposed(
    rng: np.random.Generator,
    posterior: Posterior,
    num_blocks: int,
    num_mixing: int,
    widening: float,
) -> Blocks:
    """Blocks of draws from the widened sampler, with log q̂ at them."""
    mixture, family = posterior.on_host(), posterior.family
    if mixture is not None:
        return _from_mixture(rng, mixture.widened(widening), num_blocks)
    if not family.has_density:
        raise ValueError("posterior must be a sampler; stored draws have no density and no weights")
    assert isinstance(family, SemiImplicit)
    wide = family.widened(widening)
    blocks = _from_family(new_key(rng), wide, posterior.coordinates, num_blocks, num_mixing)
    draws, log_q = (np.asarray(part, np.float64) for part in blocks)
    return draws, log_q


def _from_mixture(
    rng: np.random.Generator, mixture: Mixture | Warped | Halves, num_blocks: int
) -> Blocks:
    draws, _ = mixture.draws(rng, num_blocks * _BLOCK)
    # In the precision of the evaluator, so that p and q are taken at the same points.
    draws = draws.astype(jnp.result_type(float)).astype(np.float64)
    shape = (num_blocks, _BLOCK)
    return draws.reshape(*shape, mixture.dim), mixture.log_density(draws).reshape(shape)


@one_shot
def _from_family(
    key: PRNGKeyArray,
    family: SemiImplicit | GaussianMixture,
    coordinates: Affine | None,
    num_blocks: int,
    num_mixing: int,
) -> tuple[Float[Array, "b m d"], Float[Array, "b m"]]:
    def block(key: PRNGKeyArray) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
        x, log_q = family.sample_and_log_prob(key, _BLOCK, num_mixing)
        if coordinates is None:
            return x, log_q
        return jax.vmap(coordinates)(x), log_q - coordinates.log_det()

    return lax.map(block, jax.random.split(key, num_blocks))


def _summarise(draws: np.ndarray, log_weights: np.ndarray, num_mixing: int) -> Importance:
    if count := int(np.sum(np.isnan(log_weights) | np.isposinf(log_weights))):
        raise ValueError(
            f"target must not be NaN or +inf at draws of the posterior, got {count} such weights"
        )
    top = log_weights.max()
    if top == -np.inf:
        raise ValueError(
            "target must not be zero at every draw of the posterior: all weights would be zero"
        )
    # If p is 0 at some draws, the bound is −∞.
    empty = bool(np.isneginf(log_weights).any())
    elbo, elbo_error = (-np.inf, np.inf) if empty else _mean_and_error(log_weights)
    mean, error = _mean_and_error(np.exp(log_weights - top))
    log_evidence = float(top + np.log(mean))
    return Importance(
        draws.reshape(-1, draws.shape[2]),
        log_weights.ravel(),
        elbo,
        elbo_error,
        log_evidence,
        error / mean,
        num_mixing,
    )


def _mean_and_error(blocks: Float[np.ndarray, "b m"]) -> tuple[float, float]:
    means = blocks.mean(axis=1)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))
