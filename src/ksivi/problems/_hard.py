"""Two posteriors of small models on which samplers are known to fail, with exact draws."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_count, as_single_key
from ..targets import Target
from ._problem import AbstractProblem, near_origin

# Made up: nine points near y = x, nine near y = 7 - 1.5 x, with normal noise of sd 0.5.
_X = (
    *(-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0),
    *(-1.9, -1.4, -1.0, -0.5, 0.0, 0.5, 0.9, 1.4, 1.9),
)
_Y = (
    *(-2.6, -1.6, -1.1, -0.6, 0.6, 0.6, 1.2, 1.5, 1.6),
    *(9.9, 9.5, 8.6, 7.5, 6.4, 7.1, 5.3, 4.5, 3.5),
)
_NOISE, _PRIOR = 0.5, 10.0
_INTERCEPTS, _SLOPES = (-4.0, 12.0, 1_601), (-5.0, 5.0, 1_001)

# Rubin (1981): effects of coaching in eight schools, and their standard errors.
_EFFECTS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
_ERRORS = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)
_LOG_TAUS = (-10.0, 6.0, 4_001)


class Hard(AbstractProblem):
    """A posterior whose exact draws come from a grid."""

    name: str = eqx.field(static=True)
    target: Target
    sampler: Callable[[np.random.Generator, int], np.ndarray] = eqx.field(static=True)

    def reference(self, key, n):
        seed = np.asarray(jax.random.key_data(as_single_key(key)))
        return jnp.asarray(self.sampler(np.random.default_rng(seed), as_count(n, "n")), float)

    def start(self, key, n):
        return near_origin(key, n, self.target.dim)


def two_lines() -> Hard:
    """Robust regression: a line with Cauchy noise of scale 0.5, and priors N(0, 10²).

    Two lines explain 18 points. The posterior has two separate modes in (intercept, slope).
    """
    target = Target(_lines_log_density, 2, names=["intercept", "slope"])
    return Hard("two lines", target, _draw_lines)


def eight_schools() -> Hard:
    """The eight schools in their centred form, x = (μ, log τ, θ₁, …, θ₈), with the priors
    μ ~ N(0, 5²) and τ ~ half-Cauchy(5)."""
    names = ["mu", "log_tau", *(f"theta_{school}" for school in range(1, 9))]
    return Hard("eight schools", Target(_schools_log_density, 10, names=names), _draw_schools)


def _lines_log_density(x: Float[Array, "2"]) -> Scalar:
    residuals = (jnp.array(_Y) - x[0] - x[1] * jnp.array(_X)) / _NOISE
    return -jnp.sum(jnp.log1p(residuals**2)) - 0.5 * jnp.sum((x / _PRIOR) ** 2)


def _draw_lines(rng: np.random.Generator, n: int) -> np.ndarray:
    """Cells of a grid by their mass, and uniform points in them."""
    a, b = np.linspace(*_INTERCEPTS), np.linspace(*_SLOPES)
    log_mass = -0.5 * ((a[:, None] / _PRIOR) ** 2 + (b / _PRIOR) ** 2)
    for x, y in zip(_X, _Y, strict=True):
        log_mass -= np.log1p(((y - a[:, None] - x * b) / _NOISE) ** 2)
    i, j = np.divmod(_cells(rng, log_mass, n), b.size)
    jitter = rng.uniform(-0.5, 0.5, (n, 2)) * (a[1] - a[0], b[1] - b[0])
    return np.stack([a[i], b[j]], axis=1) + jitter


def _schools_log_density(x: Float[Array, "10"]) -> Scalar:
    mu, log_tau, theta = x[0], x[1], x[2:]
    tau = jnp.exp(log_tau)
    prior = stats.norm.logpdf(mu, 0.0, 5.0) + stats.cauchy.logpdf(tau, 0.0, 5.0) + log_tau
    schools = stats.norm.logpdf(theta, mu, tau)
    data = stats.norm.logpdf(jnp.array(_EFFECTS), theta, jnp.array(_ERRORS))
    return prior + jnp.sum(schools) + jnp.sum(data)


def _draw_schools(rng: np.random.Generator, n: int) -> np.ndarray:
    """log τ from a grid of its marginal density; μ and θ are Gaussian given τ."""
    grid, y, errors = np.linspace(*_LOG_TAUS), np.array(_EFFECTS), np.array(_ERRORS)
    mean, variance, log_mass = _given_tau(np.exp(grid), y, errors)
    at = _cells(rng, log_mass, n)
    log_tau = grid[at] + rng.uniform(-0.5, 0.5, n) * (grid[1] - grid[0])
    mu = mean[at] + np.sqrt(variance[at]) * rng.normal(size=n)
    precision = 1 / errors**2 + np.exp(-2 * log_tau)[:, None]
    centre = (y / errors**2 + mu[:, None] * np.exp(-2 * log_tau)[:, None]) / precision
    theta = centre + rng.normal(size=centre.shape) / np.sqrt(precision)
    return np.column_stack([mu, log_tau, theta])


def _given_tau(
    tau: np.ndarray, y: np.ndarray, errors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of μ given τ and the data, and the log density of log τ up to a constant."""
    spread = errors**2 + tau[:, None] ** 2  # the variance of yⱼ given μ and τ
    precision = np.sum(1 / spread, axis=1) + 1 / 25
    mean = np.sum(y / spread, axis=1) / precision
    log_mass = -0.5 * np.sum(np.log(spread) + y**2 / spread, axis=1)
    log_mass += 0.5 * precision * mean**2 - 0.5 * np.log(precision)
    return mean, 1 / precision, log_mass + np.log(tau) - np.log1p((tau / 5) ** 2)


def _cells(rng: np.random.Generator, log_mass: np.ndarray, n: int) -> np.ndarray:
    """n flat positions in a grid, drawn by their mass."""
    total = np.cumsum(np.exp(log_mass - log_mass.max()).ravel())
    return np.searchsorted(total, rng.random(n) * total[-1], side="right")
