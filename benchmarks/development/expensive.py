"""Models whose every score is a long loop over time, so that evaluations of the target are what a fit costs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ksivi import from_numpyro

from .base import Case, by_nuts

_STEPS_BETWEEN = 10
"""Steps of Runge and Kutta between two observations: five digits at the rates of the data."""


def hidden_states(y):
    """A hidden Markov chain of three states in the order of their means, seen with noise."""
    low = numpyro.sample("low", dist.Normal(-2, 2))
    gaps = numpyro.sample("gaps", dist.LogNormal(0.7, 0.5).expand([2]))
    stay = numpyro.sample("stay", dist.Beta(8, 2).expand([3]))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.5))
    means = low + jnp.concatenate([jnp.zeros(1), jnp.cumsum(gaps)])
    log_emission = dist.Normal(means, sigma).log_prob(y[:, None])
    numpyro.factor("likelihood", forward(jnp.log(move_matrix(stay)), log_emission))


def move_matrix(stay: Float[Array, " k"]) -> Float[Array, "k k"]:
    """The probabilities of moving from row to column; all other states are equally likely."""
    k = len(stay)
    return jnp.where(jnp.eye(k, dtype=bool), stay[:, None], (1 - stay[:, None]) / (k - 1))


def forward(log_move: Float[Array, "k k"], log_emission: Float[Array, "n k"]) -> Array:
    """The log likelihood of the observations, the hidden states summed out. The first is uniform."""

    def step(log_joint, log_emitted):
        return logsumexp(log_joint[:, None] + log_move, axis=0) + log_emitted, None

    first = log_emission[0] - jnp.log(log_emission.shape[1])
    return logsumexp(jax.lax.scan(step, first, log_emission[1:])[0])


def hidden_markov() -> Case:
    rng = np.random.default_rng(41)
    moves = np.asarray(move_matrix(jnp.array([0.9, 0.8, 0.85])), np.float64)
    state, y = 0, np.zeros(400)
    for t in range(400):
        y[t] = rng.normal([-2.0, 0.0, 2.5][state], 0.9)
        state = rng.choice(3, p=moves[state] / moves[state].sum())
    return by_nuts("hidden-markov", from_numpyro(hidden_states, y))


def predators(gap, prey, predator):
    """Predators and their prey by the equations of Lotka and Volterra, seen with log-normal noise.

    **Arguments:**

    - `gap`: the time between two observations.
    - `prey`, `predator`: the numbers seen, the first ones at time zero.
    """
    rates = numpyro.sample("rates", dist.LogNormal(-0.5, 0.5).expand([4]))
    start = numpyro.sample("start", dist.LogNormal(0, 1).expand([2]))
    noise = numpyro.sample("noise", dist.LogNormal(-1.5, 0.5).expand([2]))
    path = log_populations(rates, jnp.log(start), gap, len(prey))
    numpyro.sample("prey", dist.LogNormal(path[:, 0], noise[0]), obs=prey)
    numpyro.sample("predator", dist.LogNormal(path[:, 1], noise[1]), obs=predator)


def log_populations(
    rates: Float[Array, " 4"], start: Float[Array, " 2"], gap: float, n: int
) -> Float[Array, "n 2"]:
    """The logarithms of both populations at n times. Logarithms keep them positive at any step."""
    growth, hunting, loss, breeding = rates

    def slope(x):
        return jnp.stack([growth - hunting * jnp.exp(x[1]), breeding * jnp.exp(x[0]) - loss])

    def observation(x, _):
        step = lambda x, _: (runge_kutta(slope, x, gap / _STEPS_BETWEEN), None)  # noqa: E731
        x = jax.lax.scan(step, x, length=_STEPS_BETWEEN)[0]
        return x, x

    later = jax.lax.scan(observation, start, length=n - 1)[1]
    return jnp.concatenate([start[None], later])


def runge_kutta(slope, x: Float[Array, " d"], h: float) -> Float[Array, " d"]:
    """One step of the classical method of order four."""
    k1 = slope(x)
    k2 = slope(x + h / 2 * k1)
    k3 = slope(x + h / 2 * k2)
    k4 = slope(x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def predator_prey() -> Case:
    rng = np.random.default_rng(42)
    gap, n = 0.6, 24
    rates, start = jnp.array([0.9, 0.5, 0.7, 0.3]), jnp.log(jnp.array([3.0, 1.0]))
    path = np.asarray(log_populations(rates, start, gap, n))
    prey, predator = np.exp(path + np.array([0.2, 0.25]) * rng.normal(size=(n, 2))).T
    return by_nuts("predator-prey", from_numpyro(predators, gap, prey, predator))


def cases() -> list[Case]:
    return [hidden_markov(), predator_prey()]
