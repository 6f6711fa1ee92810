r"""The truth of stochastic volatility by quadrature: the log volatility is a Markov chain of one variable.

With u = (h − m) / σ the chain is u₁ ~ N(0, 1 / (1 − φ²)), u_t ~ N(φ u_{t−1}, 1), and y_t ~ N(0, exp(m + σ u_t)). Given
(m, φ, σ), a forward filter over equally spaced nodes gives p(y | m, φ, σ) and the predictive densities p(u_t | y_{<t}).
The trapezoidal rule is nearly exact for them, since all are smooth over a width of 1. Paths are drawn backwards.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from .big_grid import draw_index, shifted
from .big_weights import number_of_draws, peak, proposed_in_box, resampled

Draws = Float[np.ndarray, "n d"]
Hyper = Float[np.ndarray, "m 3"]
"""Rows of (m, a, log σ), φ = tanh(a / 2)."""

_REACH = 7.5
"""The nodes go so many stationary widths to both sides."""
_SPACING, _COARSE = 0.5, 0.75
"""At most so far apart are the nodes where paths are drawn, and where only integrals are needed."""
_LARGEST = 9.0
"""|a| is held below this, φ < 0.9998, since nodes would be too many: 10⁻⁴ of the prior mass is beyond."""
_BATCH = 32
_START, _STEPS = np.array([0.0, 3.5, -1.5]), np.array([1.0, 0.4, 0.2])


def volatility(y: Float[np.ndarray, " t"], n: int | None = None) -> Draws:
    """Exact draws of (m, a, log σ, z), u₁ = z₁ / √(1 − φ²), u_t = φ u_{t−1} + z_t."""
    rng, y = np.random.default_rng(7), np.asarray(y, float)
    n = n or number_of_draws(len(y))
    log_f = lambda v: _log_marginal_of_scaled(v, y)  # noqa: E731
    scaled, log_q = proposed_in_box(rng, log_f, peak(log_f, _START, _STEPS), n)
    hyper, log_p = _unscaled(scaled, y)
    noise, log_p = np.empty((n, len(y))), log_p + log_prior(hyper)
    for some in _batches(hyper):
        chain = Chain(hyper[some])
        log_likelihood, log_predictive = chain.filtered(y, keep=True)
        log_p[some] += log_likelihood
        noise[some] = chain.noise_of(chain.draw_path(rng, y, log_predictive))
    return resampled(rng, np.concatenate([hyper, noise], axis=1), log_p - log_q)


def _unscaled(scaled: Hyper, y: Float[np.ndarray, " t"]) -> tuple[Hyper, np.ndarray]:
    r"""(m, a, log σ) of (v, a, log σ), m = c + s v, and log |∂m/∂v|.

    The width s of m given the others is far larger for φ near 1: 1/s² = 1/4 + 1/(σ²/(1 − φ)² + 2)·T, from the prior and
    the variance of a mean over time; c is the mean of log y² less that of log χ².
    """
    v, a, log_sigma = scaled.T
    spread = (np.exp(log_sigma) * (1 + np.exp(a)) / 2) ** 2
    scale = (0.25 + len(y) / (spread + 2)) ** -0.5
    centre = np.mean(np.log(np.maximum(y**2, 1e-6))) + 1.27
    return np.stack([centre + scale * v, a, log_sigma], axis=1), np.log(scale)


def _log_marginal_of_scaled(scaled: Hyper, y: Float[np.ndarray, " t"]) -> np.ndarray:
    hyper, log_jacobian = _unscaled(scaled, y)
    return log_jacobian + log_marginal(hyper, y)


def log_marginal(hyper: Hyper, y: Float[np.ndarray, " t"]) -> Float[np.ndarray, " m"]:
    """log p(m, a, log σ | y) up to a constant, the path integrated out."""
    found = log_prior(hyper)
    held = np.stack([hyper[:, 0], np.clip(hyper[:, 1], -_LARGEST, _LARGEST), hyper[:, 2]], axis=1)
    for some in _batches(hyper):
        found[some] += Chain(held[some], _COARSE).filtered(y)[0]
    return found


def log_prior(hyper: Hyper) -> Float[np.ndarray, " m"]:
    """m ~ N(0, 2), (φ + 1)/2 ~ Beta(20, 3/2), σ ~ N⁺(0, 1/2), with the Jacobians of a and log σ."""
    m, a, log_sigma = hyper.T
    persistence = -20 * np.logaddexp(0, -a) - 1.5 * np.logaddexp(0, a)
    persistence -= 10 * np.maximum(np.abs(a) - _LARGEST, 0) ** 2  # no jump, for splines
    return -(m**2) / 8 + persistence + log_sigma - 2 * np.exp(2 * log_sigma)


def _batches(hyper: Hyper) -> Iterator[np.ndarray]:
    """Rows in the order of |a|, so that those of one batch need about the same number of nodes."""
    order = np.argsort(np.abs(hyper[:, 1]))
    return (order[low : low + _BATCH] for low in range(0, len(order), _BATCH))


def _num_nodes(hyper: Hyper, spacing: float) -> int:
    wanted = 2 * _REACH * _stationary_width(hyper).max() / spacing
    return int(np.ceil(wanted)) + 1


def _stationary_width(hyper: Hyper) -> Float[np.ndarray, " m"]:
    """1 / √(1 − φ²) = cosh(a / 2), exact for φ near 1 too."""
    return np.cosh(hyper[:, 1] / 2)


class Chain:
    """The chain u at several hyperparameters, each with as many nodes, u_k = k Δ.

    **Arguments:**

    - `hyper`: rows of (m, a, log σ).
    - `spacing`: at most so far apart are the nodes.
    """

    def __init__(self, hyper: Hyper, spacing: float = _SPACING):
        self.m, self.sigma = hyper[:, 0], np.exp(hyper[:, 2])
        self.phi, self.width = np.tanh(hyper[:, 1] / 2), _stationary_width(hyper)
        self.nodes = self.width[:, None] * np.linspace(-_REACH, _REACH, _num_nodes(hyper, spacing))
        self.spacing = self.nodes[:, 1] - self.nodes[:, 0]
        h = self.m[:, None] + self.sigma[:, None] * self.nodes
        self.roughness = np.exp(np.minimum(-h, 300))

    def filtered(self, y: Float[np.ndarray, " t"], keep: bool = False):
        """log p(y), up to a constant, and if asked for log p(u_t | y_{<t}) at the nodes."""
        density = np.exp(-0.5 * (self.nodes / self.width[:, None]) ** 2)
        density *= (self.spacing / (self.width * np.sqrt(2 * np.pi)))[:, None]
        move, total = self._transition(), np.zeros(len(self.m))
        kept = np.empty((len(y), *density.shape)) if keep else None
        for t, square in enumerate(y**2):
            if kept is not None:
                np.log(np.maximum(density, 1e-300), out=kept[t])
            log_f = self._log_likelihood(square, self.nodes, self.roughness)
            highest = log_f.max(axis=1)
            density *= np.exp(log_f - highest[:, None])
            sums = np.maximum(density.sum(axis=1), 1e-300)
            total += highest + np.log(sums)
            density = np.matmul(move, (density / sums[:, None])[..., None])[..., 0]
        return total, kept

    def _transition(self) -> Float[np.ndarray, "m k k"]:
        """Δ N(u_j; φ u_i, 1)."""
        gaps = self.nodes[:, :, None] - (self.phi[:, None] * self.nodes)[:, None, :]
        return np.exp(-0.5 * gaps**2) * (self.spacing / np.sqrt(2 * np.pi))[:, None, None]

    def _log_likelihood(self, square, nodes, roughness) -> Float[np.ndarray, "m k"]:
        """−(h + y² e^{−h}) / 2, h = m + σ u, `roughness` = e^{−h}."""
        return -0.5 * (self.m[:, None] + self.sigma[:, None] * nodes + square * roughness)

    def draw_path(self, rng: np.random.Generator, y, log_predictive) -> Float[np.ndarray, "m t"]:
        r"""Draws u_T, …, u₁: p(u_t | u_{t+1}, y) ∝ p(u_t | y_{<t}) p(y_t | u_t) N(u_{t+1}; φ u_t, 1).

        A random offset moves all nodes at each time, as `draw_index` needs. Only log p(u_t | y_{<t}) is interpolated.
        """
        path, inner = np.empty((len(self.m), len(y))), self.nodes[:, 2:-3]
        for t in reversed(range(len(y))):
            offset = rng.uniform(size=len(self.m))
            moved = inner + (offset * self.spacing)[:, None]
            roughness = (
                self.roughness[:, 2:-3] * np.exp(-self.sigma * offset * self.spacing)[:, None]
            )
            log_f = shifted(log_predictive[t], offset)
            log_f += self._log_likelihood(y[t] ** 2, moved, roughness)
            if t + 1 < len(y):
                log_f -= 0.5 * (path[:, t + 1, None] - self.phi[:, None] * moved) ** 2
            path[:, t] = np.take_along_axis(moved, draw_index(rng, log_f)[:, None], axis=1)[:, 0]
        return path

    def noise_of(self, path: Float[np.ndarray, "m t"]) -> Float[np.ndarray, "m t"]:
        first = path[:, :1] / self.width[:, None]
        return np.concatenate([first, path[:, 1:] - self.phi[:, None] * path[:, :-1]], axis=1)
