"""Rough draws of the target: particles that move from a mixture of Gaussians to it, in stages."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from .._core.compile import one_shot
from .._core.numerics import full_precision, log_mean_weight, nonfinite_to_minus_inf
from ..targets import Target
from ._gaussians import Gaussians, log_gaussian

_MIN_ESS = 0.8
"""Smallest effective share of the particles from one temperature to the next."""
_MOST_STAGES, _TRANSITIONS, _LEAPFROG = 40, 3, 8
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
    roots = gaussians.roots[origins]

    def evaluate(x: Float[Array, "n d"]):
        value, score = jax.vmap(target.log_density_and_score)(x)
        log_q, pull = jax.vjp(lambda x: _log_mixture(gaussians, x), x)
        total = (1 - beta) * pull(jnp.ones_like(log_q))[0] + beta * score
        return value, log_q, jnp.einsum("nij,ni->nj", roots, total)

    momentum_key, jitter_key, accept_key = jax.random.split(key, 3)
    p = jax.random.normal(momentum_key, x.shape, x.dtype)
    size = step * jnp.exp(jax.random.uniform(jitter_key, (len(x), 1), x.dtype, -1.0, 0.3))

    def leap(carry, _):
        x, p, (_, _, force) = carry
        p = p + 0.5 * size * force
        x = x + jnp.einsum("nij,nj->ni", roots, size * p)
        places = evaluate(x)
        return (x, p + 0.5 * size * places[2], places), None

    with full_precision():
        first = evaluate(x)
        (new_x, new_p, new), _ = lax.scan(leap, (x, p, first), None, length=_LEAPFROG)
    energy = lambda place, p: (  # noqa: E731
        (1 - beta) * place[1] + beta * place[0] - 0.5 * jnp.sum(p**2, axis=1)
    )
    gain = energy(new, new_p) - energy(first, p)
    is_finite = jnp.isfinite(new[0]) & ~jnp.isnan(gain) & jnp.all(jnp.isfinite(new_x), axis=1)
    probability = jnp.where(is_finite, jnp.exp(jnp.minimum(gain, 0)), 0)
    accept = jax.random.uniform(accept_key, gain.shape, x.dtype) < probability
    x = jnp.where(accept[:, None], new_x, x)
    value, log_q = (jnp.where(accept, b, a) for a, b in zip(first[:2], new[:2], strict=True))
    return x, value - log_q, jnp.mean(probability)
