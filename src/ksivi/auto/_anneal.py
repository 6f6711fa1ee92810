"""Rough draws of the target: particles that move from a mixture of Gaussians to it, in stages."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from .._core.hmc import Evaluate, Place, hmc_transition, where_finite
from .._core.mixtures import Mixture, times_chosen
from .._core.numerics import log_mean_weight, nonfinite_to_minus_inf, resampled

Points = Float[np.ndarray, "n d"]
Numbers = Float[np.ndarray, " n"]

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
    """Draws of a mixture of Gaussians q, the Gaussian of each, and p and q there.

    `log_p`, `log_q`, `score_p` and `score_q` are the log densities and their gradients.
    """

    x: Points
    origins: Int[np.ndarray, " n"]
    log_p: Numbers
    score_p: Points
    log_q: Numbers
    score_q: Points

    @property
    def log_ratio(self) -> Numbers:
        """log p / q, or −∞ where it is not finite."""
        with np.errstate(invalid="ignore"):
            return nonfinite_to_minus_inf(self.log_p - self.log_q)

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.x, self.origins, self.log_p, self.score_p, self.log_q, self.score_q

    def chosen(self, which: Int[np.ndarray, " n"]) -> "Particles":
        return Particles(*(array[which] for array in self.arrays()))

    def place(self, u: Points, mixture: Mixture, beta: float) -> Place:
        """The place of p_β at u, in the coordinates of the Gaussians."""
        value, score = beta * self.log_p, beta * self.score_p
        if beta < 1:
            value, score = value + (1 - beta) * self.log_q, score + (1 - beta) * self.score_q
        return Place(u, value, times_chosen(score, mixture.roots, self.origins), self.arrays())


def begin(rng: np.random.Generator, evaluate: Evaluate, mixture: Mixture, num: int) -> Particles:
    """Draws from every Gaussian in proportion to its share, weighed by the mixture."""
    edges = np.cumsum(mixture.shares) / np.sum(mixture.shares)
    origins = np.searchsorted(edges[:-1], (np.arange(num) + 0.5) / num)
    x = mixture.at(origins, rng.standard_normal((num, mixture.dim)))
    return _measured(evaluate, mixture, x, origins)


def anneal(
    rng: np.random.Generator, evaluate: Evaluate, mixture: Mixture, particles: Particles
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
    for stage in range(_MOST_STAGES):
        log_ratio = particles.log_ratio
        if not np.isfinite(log_ratio).any():
            return None
        new_beta = 1.0 if stage == _MOST_STAGES - 1 else _next_beta(log_ratio, beta)
        log_weights = (new_beta - beta) * log_ratio
        log_evidence += log_mean_weight(log_weights)
        weights = np.exp(log_weights - log_weights.max())
        particles, beta = particles.chosen(resampled(rng, weights)), new_beta
        for _ in range(_LAST_TRANSITIONS if beta == 1.0 else _TRANSITIONS):
            particles, rate = _moved(rng, evaluate, mixture, particles, beta, step)
            step *= float(np.exp(rate - _ACCEPTANCE))
        if beta == 1.0:
            return Annealed(particles.x, particles.origins, float(log_evidence))
    return None


def _moved(
    rng: np.random.Generator,
    evaluate: Evaluate,
    mixture: Mixture,
    particles: Particles,
    beta: float,
    step: float,
) -> tuple[Particles, float]:
    """One transition of every particle, and the mean acceptance."""
    transposed, origins = np.swapaxes(mixture.roots, 1, 2), particles.origins
    still_needed = mixture if beta < 1 else None

    def at(u: Points) -> Place:
        x = particles.x + times_chosen(u, transposed, origins)
        return _measured(evaluate, still_needed, x, origins).place(u, mixture, beta)

    here = particles.place(np.zeros_like(particles.x), mixture, beta)
    new, rates = hmc_transition(rng, at, here, step)
    return Particles(*new.extra), float(rates.mean())


@np.errstate(all="ignore")
def _measured(
    evaluate: Evaluate, mixture: Mixture | None, x: Points, origins: Int[np.ndarray, " n"]
) -> Particles:
    """The particles at these points. Without a mixture, q is left out: it is not needed at β = 1."""
    of_p = where_finite(evaluate, x)
    of_q = mixture.log_density_and_score(x) if mixture else (np.zeros(len(x)), np.zeros(x.shape))
    return Particles(x, origins, *of_p, *of_q)


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
