"""Better draws and better mixtures, by what the checks found."""

import numpy as np
from jaxtyping import Float

from .._core.mixtures import Mixture
from .._core.numerics import resampled
from ..diagnostics import Importance, Movement, chains, difference, truncated_weights
from ..families import GaussianMixture
from ..results import Posterior
from ..targets import Evaluator
from ._doubts import FORGOTTEN, Findings
from ._em import fit_mixture
from ._measured import is_reliable, is_unchanged, weigh

Draws = Float[np.ndarray, "n d"]

_FEWEST = 3_000
"""The number of states of chains that a mixture is fitted to."""
_MOST_PRODUCTS = 2_000_000
"""More states are used in few dimensions, up to this number of products xᵢ xⱼ in all."""
_MOST_POLISHED = 3


def better_draws(rng: np.random.Generator, evaluate: Evaluator, findings: Findings) -> Draws | None:
    """Draws nearer to the target, by weights or by chains; None if the draws were not checked.

    Weights also correct the shares of separate modes, but reach no further than the draws do.
    """
    weighed, moved = findings.weighed, findings.moved
    if weighed is None or moved is None:
        return None
    if findings.is_light and _weights_know_more(findings, weighed, moved):
        return weighed.draws[resampled(rng, truncated_weights(weighed.log_weights))]
    states = list(moved.states)  # a mixture may be fitted to states that depend on each other
    while len(states) * len(states[0]) < _FEWEST:
        states += list(chains(rng, evaluate, states[-1]).states)
    num_kept = max(_FEWEST, _MOST_PRODUCTS // evaluate.dim**2) // len(states[0])
    return np.concatenate(states[-max(num_kept, 1) :])


def _weights_know_more(findings: Findings, weighed: Importance, moved: Movement) -> bool:
    """Whether weights correct the draws better: chains are slow, or have nothing to correct."""
    if findings.is_close or findings.diagnostics.hmc_memory > FORGOTTEN:
        return True
    is_unmoved = difference(moved.before, moved.settled).is_tiny(len(moved.settled))
    return is_unmoved and weighed.effective_sample_size > _FEWEST


def polished(rng: np.random.Generator, evaluate: Evaluator, mixture: Mixture) -> Mixture:
    """The mixture, fitted again to its own draws with their weights while these change them.

    This costs far less than chains, where weights can be relied on.
    """
    for _ in range(_MOST_POLISHED):
        try:
            of = Posterior.of(GaussianMixture.of(mixture), evaluate.target)
            plain = weigh(rng, evaluate, of, 1.0)
        except ValueError:  # NaN or zero everywhere: the checks report it
            return mixture
        if not is_reliable(plain) or is_unchanged(plain):
            return mixture
        chosen = resampled(rng, truncated_weights(plain.log_weights))
        mixture = fit_mixture(rng, plain.draws[chosen])
    return mixture
