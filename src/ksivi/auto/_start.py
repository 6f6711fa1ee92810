"""The start of the training: coordinates, and rough draws if one Gaussian is not enough."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._core.compile import one_shot
from ..diagnostics import log_mean_weight, truncated_weights
from ..targets import Target
from ._gaussians import Gaussians, log_gaussian

_MIN_GAIN = 0.1
"""The mixture is used if it beats its best Gaussian by more than this, in nats."""
_DRAWS_PER_GAUSSIAN, _ROUGH_DRAWS = 300, 3_000
_MIN_ESS_PER_DIM = 10
"""With fewer effective draws per dimension, weighted draws do not show the shape."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Coordinates for the training, and rough draws of the target if one Gaussian is not enough.

    **Attributes:**

    - `target`: the target in whitened coordinates.
    - `draws`: draws of a mixture of Gaussians, resampled by importance weights, in these
        coordinates.
    - `elbo`, `log_evidence`: ELBO of the best Gaussian, and log evidence by the mixture.
    """

    target: Target
    draws: Float[Array, "n d"] | None
    elbo: float
    log_evidence: float


def choose_start(key: PRNGKeyArray, target: Target, gaussians: Gaussians) -> Start | None:
    """A start from the best Gaussian, or from the mixture of all; None if no Gaussian is usable."""
    usable = gaussians.usable()
    if not len(usable.elbos):
        return None
    best = int(np.argmax(usable.elbos))
    weigh_key, choose_key = jax.random.split(key)
    x, log_weights = (np.asarray(part, np.float64) for part in _weigh(weigh_key, target, usable))
    weights, log_evidence = truncated_weights(log_weights), log_mean_weight(log_weights)
    elbo = float(usable.elbos[best])
    effective = 1 / np.sum(weights**2)
    if log_evidence - elbo < _MIN_GAIN or effective < _MIN_ESS_PER_DIM * target.dim:
        return Start(
            target.whitened(usable.means[best], usable.roots[best]), None, elbo, log_evidence
        )
    loc, root = _moments(x, weights)
    chosen = np.asarray(_resample(choose_key, weights))
    u = np.linalg.solve(root, (x[chosen] - loc).T).T
    dtype = usable.means.dtype
    whitened = target.whitened(jnp.asarray(loc, dtype), jnp.asarray(root, dtype))
    return Start(whitened, jnp.asarray(u, dtype), elbo, log_evidence)


@one_shot
def _weigh(key: PRNGKeyArray, target: Target, gaussians: Gaussians):
    """Draws of every Gaussian, and their log weights under the mixture with equal weights."""
    xi = jax.random.normal(
        key, (len(gaussians.means), _DRAWS_PER_GAUSSIAN, target.dim), gaussians.means.dtype
    )
    x = gaussians.means[:, None] + jnp.einsum("mnd,med->mne", xi, gaussians.roots)
    x = x.reshape(-1, target.dim)
    log_q = jax.vmap(lambda mean, root: log_gaussian(mean, root, x))(
        gaussians.means, gaussians.roots
    )
    log_q = jax.nn.logsumexp(log_q, axis=0) - jnp.log(len(gaussians.means))
    return x, jax.vmap(target.log_density)(x) - log_q


@one_shot
def _resample(key: PRNGKeyArray, weights: Float[np.ndarray, " n"]) -> Int[Array, " m"]:
    return jax.random.choice(key, len(weights), (_ROUGH_DRAWS,), p=jnp.asarray(weights))


def _moments(x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]):
    loc = weights @ x
    covariance = (weights[:, None] * (x - loc)).T @ (x - loc)
    return loc, np.linalg.cholesky(covariance + 1e-6 * np.diag(np.diag(covariance)))
