"""Importance weights of a fit, and shares of separate modes by them. Chains do not see shares."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics import Importance, pareto_khat, truncated_weights, weighted
from ..families import ModeMixing, SemiImplicit
from ..results import Posterior
from ..targets import Evaluator
from ._modes import Modes

NUM_WEIGHED, NUM_MIXING, WIDENING = 8_000, 1_000, 1.5
"""The number of weighted draws, the number of z in each density, and the widening of the mixing."""
_SURE_KHAT, _SURE_SHARE = 0.5, 0.7
"""Weights with lighter tails, most of which count, can show alone that the draws are good."""
_TINY = 1e-30
_MAX_KHAT = 1.0
"""Above this the mean of the weights does not exist. Shares need less than the verdict does."""
_SMALLEST = 1e-3
"""A share is not set below this, so that a mode can return."""


def weigh(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, widening: float
) -> Importance:
    return weighted(rng, evaluate, posterior, NUM_WEIGHED, NUM_MIXING, widening)


def share(weighed: Importance) -> float:
    """The effective share of the weights."""
    return weighed.effective_sample_size / len(weighed.log_weights)


def is_reliable(weighed: Importance, least_share: float = _SURE_SHARE) -> bool:
    """Whether the weights can show alone that the draws are good."""
    return pareto_khat(weighed.log_weights) < _SURE_KHAT and share(weighed) > least_share


def is_unchanged(plain: Importance) -> bool:
    """Whether the weights change their own draws by hardly more than noise."""
    return plain.difference.is_tiny(1 / max(plain.difference_error, _TINY) ** 2)


def with_weighed_shares(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, modes: Modes | None
) -> Posterior:
    r"""The same sampler with the shares w_k of its modes multiplied by their mean weights.

        w_k′ ∝ w_k · (share of the weights in mode k) / (share of the draws in mode k)

    If the weights have heavy tails, the shares stay as they are.
    """
    family = posterior.family
    mixing = family.mixing if isinstance(family, SemiImplicit) else None
    if modes is None or not isinstance(mixing, ModeMixing):
        return posterior
    try:
        found = weigh(rng, evaluate, posterior, WIDENING)
    except ValueError:  # NaN or zero everywhere: the checks report it
        return posterior
    if pareto_khat(found.log_weights) >= _MAX_KHAT:
        return posterior
    before = modes.shares_of(found.draws)
    after = modes.shares_of(found.draws, truncated_weights(found.log_weights))
    factors = np.where(before > 0, after / np.maximum(before, 1e-30), 1.0)
    shares = np.maximum(np.asarray(mixing.shares, np.float64) * factors, _SMALLEST)
    new = ModeMixing(mixing.base, jnp.asarray(shares, mixing.shares.dtype))
    return dataclasses.replace(posterior, family=eqx.tree_at(lambda f: f.mixing, family, new))
