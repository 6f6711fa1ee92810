"""Rough draws of the target: particles that move from a mixture of Gaussians to it, in stages."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from .._core.compile import one_shot
from .._core.hmc import Place, hmc_transition
from .._core.numerics import full_precision, log_mean_weight, nonfinite_to_minus_inf
from ..targets import Target
from ._gaussians import Gaussians, log_gaussian

_MIN_ESS = 0.8
"""Smallest effective share of the particles from one temperature to the next."""
_MOST_STAGES, _TRANSITIONS = 40, 3
_LAST_TRANSITIONS = 10
_ACCEPTANCE, _FIRST_STEP = 0.7, 0.3


@dataclasses.dataclass(frozen=True)
class Annealed:
    """Particles with equal weights, the Gaussian from which each came, and the log evidence."""

    draws: Float[np.ndarray, "n d"]
    origins: Int[np.ndarray, " n"]
    log_evidence: float


@dataclasses.dataclass(frozen=True)
class Particles:
    """Draws of a mixture of Gaussians, the Gaussian of each, and log p / q there."""

    x: Float[Array, "n d"]
    origins: Int[np.ndarray, " n"]
    log_ratio: Float[np.ndarray, " n"]

    def chosen(self, which: Int[np.ndarray, " n"]) -> "Particles":
        return Particles(self.x[which], self.origins[which], self.log_ratio[which])


def begin(key: PRNGKeyArray, target: Target, gaussians: Gaussians, num: int) -> Particles:
    """The same number of draws from every Gaussian, weighed by the mixture with equal weights."""
    origins = np.arange(num) * len(gaussians.means) // num
    x, log_ratio = _first(key, target, gaussians, jnp.asarray(origins))
    return Particles(x, origins, _as_log(log_ratio))


def anneal(
    key: PRNGKeyArray, target: Target, gaussians: Gaussians, particles: Particles
) -> Annealed | None:
    r"""Draws by sequential Monte Carlo from the mixture q to the target.

        log p_β(x) = (1 − β) log q(x) + β log p(x),   β from 0 to 1

    At each β the particles are resampled by their weights (p / q)^(β′ − β), and then moved by
    Hamiltonian Monte Carlo, in the coordinates of the Gaussian that they came from. Separate modes
    keep their shares, also where a Gaussian is a poor approximation of a mode. None if p is 0 at
    every particle.

    Reference: Del Moral, Doucet and Jasra, Sequential Monte Carlo samplers, 2006.
    """
    beta, step, log_evidence = 0.0, _FIRST_STEP, 0.0
    for stage, stage_key in enumerate(jax.random.split(key, _MOST_STAGES)):
        if not np.isfinite(particles.log_ratio).any():
            return None
        is_last = stage == _MOST_STAGES - 1
        new_beta = 1.0 if is_last else _next_beta(particles.log_ratio, beta)
        log_weights = (new_beta - beta) * particles.log_ratio
        log_evidence += log_mean_weight(log_weights)
        particles, beta = particles.chosen(_resampled(stage, log_weights)), new_beta
        num = _LAST_TRANSITIONS if beta == 1.0 else _TRANSITIONS
        for move_key in jax.random.split(stage_key, num):
            particles, rate = _moved(move_key, target, gaussians, particles, beta, step)
            step *= float(np.exp(rate - _ACCEPTANCE))
        if beta == 1.0:
            draws = np.asarray(particles.x, np.float64)
            return Annealed(draws, particles.origins, float(log_evidence))
    return None


def _moved(
    key: PRNGKeyArray,
    target: Target,
    gaussians: Gaussians,
    particles: Particles,
    beta: float,
    step: float,
) -> tuple[Particles, float]:
    scalars = (jnp.asarray(a, particles.x.dtype) for a in (beta, step))
    origins = jnp.asarray(particles.origins)
    x, log_ratio, rate = _move(key, target, gaussians, particles.x, origins, *scalars)
    return Particles(x, particles.origins, _as_log(log_ratio)), float(rate)


def _as_log(log_ratio: Float[Array, " n"]) -> Float[np.ndarray, " n"]:
    return nonfinite_to_minus_inf(np.asarray(log_ratio, np.float64))


def _next_beta(log_ratio: Float[np.ndarray, " n"], beta: float) -> float:
    """The largest β at which most particles are still effective, by bisection."""

    def effective(new: float) -> float:
        log_weights = (new - beta) * log_ratio
        weights = np.exp(log_weights - log_weights.max())
        return weights.sum() ** 2 / np.sum(weights**2) / len(weights)

    low, high = beta, 1.0
    if effective(1.0) >= _MIN_ESS:
        return 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= _MIN_ESS else (low, middle)
    return max(low, beta + 1e-6)


def _resampled(stage: int, log_weights: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Systematic resampling: a particle with weight w is kept ⌊nw⌋ or ⌈nw⌉ times."""
    weights = np.exp(log_weights - log_weights.max())
    edges = np.cumsum(weights) / weights.sum()
    points = (np.random.default_rng(stage).random() + np.arange(len(edges))) / len(edges)
    return np.minimum(np.searchsorted(edges, points), len(edges) - 1)


@one_shot
def _first(key: PRNGKeyArray, target: Target, gaussians: Gaussians, origins: Int[Array, " n"]):
    xi = jax.random.normal(key, (len(origins), target.dim), gaussians.means.dtype)
    with full_precision():
        x = gaussians.means[origins] + jnp.einsum("nij,nj->ni", gaussians.roots[origins], xi)
    return x, jax.vmap(target.log_density)(x) - _log_mixture(gaussians, x)


def _log_mixture(gaussians: Gaussians, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    logs = jax.vmap(lambda mean, root: log_gaussian(mean, root, x))(
        gaussians.means, gaussians.roots
    )
    return jax.nn.logsumexp(logs, axis=0) - jnp.log(len(gaussians.means))


@one_shot
def _move(
    key: PRNGKeyArray,
    target: Target,
    gaussians: Gaussians,
    x: Float[Array, "n d"],
    origins: Int[Array, " n"],
    beta: Scalar,
    step: Scalar,
):
    """One transition of every particle: x, log p / q there, and the mean acceptance."""

    def transition(key: PRNGKeyArray, x: Float[Array, " d"], root: Float[Array, "d d"]):
        def evaluate(u: Float[Array, " d"]) -> Place:
            here = x + root @ u
            log_p, score = target.log_density_and_score(here)
            log_q, score_q = jax.value_and_grad(lambda x: _log_mixture(gaussians, x[None])[0])(here)
            value = (1 - beta) * log_q + beta * log_p
            return Place(u, value, root.T @ ((1 - beta) * score_q + beta * score), log_p - log_q)

        new, rate = hmc_transition(key, evaluate, evaluate(jnp.zeros_like(x)), step)
        return x + root @ new.x, new.extra, rate

    with full_precision():
        x, log_ratio, rate = jax.vmap(transition)(
            jax.random.split(key, len(x)), x, gaussians.roots[origins]
        )
    return x, log_ratio, jnp.mean(rate)
