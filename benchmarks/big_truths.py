"""Draws of the truths of large posteriors by importance weights and by quadrature, in double precision on the host.

They raise `RuntimeError` where their own checks fail. The truth that is long chains is in `big_chains`, those of
stochastic volatility and of the negative binomial in `big_volatility` and `big_groups`.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.interpolate import RectBivariateSpline
from scipy.optimize import minimize

from .big_grid import draw_on_grid, log_integral
from .big_weights import curvature, ess_share, number_of_draws, resampled
from .development.base import NUM_TRUTH

Draws = Float[np.ndarray, "n d"]

_BLOCK = 2**17
_WEIGHED = 4_000_000_000
"""Rows times draws that are weighed at first."""
_NEARLY_EXACT = 0.999
_RARE = 200
"""A level with fewer rows is integrated by itself."""
_NODES = 97


def none() -> Draws:
    raise RuntimeError("it has no truth of its own")


def logistic(
    table: np.ndarray, prior_scale: float, exclusive: Sequence[int] = (), n: int = NUM_TRUTH
) -> Draws:
    r"""Draws of a logistic regression, y in the last column, by importance resampling of the Laplace Gaussian.

    The coefficient of a rare level is far from Gaussian. A row has one level only, so given the other coefficients c
    these are independent: ∫ p(c, s) ds = p(c, no rare rows) ∏ᵣ ∫ p(sᵣ) ∏_{i ∈ r} p(yᵢ | c, sᵣ) dsᵣ. The Gaussian then
    proposes c alone, and each sᵣ is drawn from its own conditional.

    **Arguments:**

    - `exclusive`: columns of indicators of which each row has at most one.
    """
    rng = np.random.default_rng(7)
    mode, precision = laplace_logistic(table, prior_scale)
    rare = np.array([r for r in exclusive if np.sum(table[:, r]) < _RARE], int)
    common = np.setdiff1d(np.arange(len(mode)), rare)
    draws, log_weight = _proposed(rng, mode, np.linalg.inv(precision), common, rare, n)
    log_weight -= 0.5 * np.sum((draws[:, common] / prior_scale) ** 2, axis=1)
    for r in rare:
        rows, width = table[table[:, r] > 0], precision[r, r] ** -0.5
        log_weight += _draw_level(rng, draws, r, rows, width, prior_scale)
    few = n if len(rare) else min(n, max(_WEIGHED // len(table), 50))
    log_weight[:few] += _log_likelihoods(table, draws[:few], rare)
    share = ess_share(log_weight[:few])
    if few < n and share > _NEARLY_EXACT:
        print(f"ESS share {share:.5f} of {few} draws: not resampled", flush=True)
        return draws
    log_weight[few:] += _log_likelihoods(table, draws[few:], rare)
    return resampled(rng, draws, log_weight)


def _proposed(rng, mode, covariance, common, rare, n: int) -> tuple[Draws, np.ndarray]:
    """Draws of the common coefficients from a Gaussian, with −log q; the rare ones at their mean given these."""
    within = covariance[np.ix_(common, common)]
    noise, draws = rng.normal(size=(n, len(common))), np.zeros((n, len(mode)))
    away = noise @ np.linalg.cholesky(within).T
    draws[:, common] = mode[common] + away
    draws[:, rare] = mode[rare] + away @ np.linalg.solve(within, covariance[np.ix_(common, rare)])
    return draws, 0.5 * np.sum(noise**2, axis=1)


def laplace_logistic(
    table: np.ndarray, prior_scale: float
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """The mode by Newton's method over all rows, and minus the Hessian there."""
    dim = table.shape[1] - 1
    beta = np.zeros(dim)
    for _ in range(50):
        score, precision = -beta / prior_scale**2, np.eye(dim) / prior_scale**2
        for low in range(0, len(table), _BLOCK):
            block = np.asarray(table[low : low + _BLOCK], float)
            x, p = block[:, :-1], 1 / (1 + np.exp(-block[:, :-1] @ beta))
            score += x.T @ (block[:, -1] - p)
            precision += (x * (p * (1 - p))[:, None]).T @ x
        step = np.linalg.solve(precision, score)
        if step @ score < 1e-12:  # so many nats are left to gain
            return beta, precision
        beta = beta + step * min(1.0, 5 / np.abs(step).max())
    raise RuntimeError("Newton's method did not converge in 50 steps")


def _draw_level(rng, draws: Draws, r: int, rows: np.ndarray, width: float, scale: float):
    """Replaces the coefficient of a level, a guess, by draws of its conditional; log ∫ of each."""
    offsets, signs = np.asarray(rows[:, :-1], float), 2 * np.asarray(rows[:, -1], float) - 1
    found = np.empty(len(draws))
    for low in range(0, len(draws), 200):
        part = draws[low : low + 200]
        nodes = part[:, r, None] + width * np.linspace(-9, 9, 145)
        part[:, r] = 0
        logits = (part @ offsets.T)[:, None, :] + nodes[:, :, None]
        log_f = -0.5 * (nodes / scale) ** 2 - np.logaddexp(0, -signs * logits).sum(axis=2)
        found[low : low + 200] = log_integral(nodes, log_f)
        part[:, r] = draw_on_grid(rng, nodes, log_f)
    return found


def _log_likelihoods(table: np.ndarray, draws: Draws, rare: np.ndarray) -> np.ndarray:
    """∑ᵢ log p(yᵢ | β) at each draw, over the rows without a rare level."""
    total, size = np.zeros(len(draws)), max(1, 20_000_000 // max(len(draws), 1))
    for low in range(0, len(table), size):
        block = np.asarray(table[low : low + size], float)
        block = block[block[:, rare].sum(axis=1) == 0]
        logits = (block[:, :-1] * (1 - 2 * block[:, -1:])) @ draws.T
        total -= np.logaddexp(0, logits, out=logits).sum(axis=0)
    return total


def poisson(
    counts: Float[np.ndarray, " g"], exposures: Float[np.ndarray, " g"], n: int | None = None
) -> Draws:
    """Exact draws of (μ, log τ, z): the effects are integrated one by one, (μ, log τ) on a grid.

    **Arguments:**

    - `counts`, `exposures`: the sums of each group, which are sufficient.
    """
    rng, groups = np.random.default_rng(7), len(counts)
    n = n or number_of_draws(groups)
    hyper = _draw_hyper(rng, counts, exposures, n)
    effects = np.empty((n, groups))
    size = max(1, 20_000_000 // (_NODES * groups))
    for low in range(0, n, size):
        some = hyper[low : low + size]
        effects[low : low + size] = draw_on_grid(
            rng, *_effects_on_grid(some, counts, exposures, _NODES)
        )
    return np.concatenate([hyper, effects], axis=1)


def _draw_hyper(rng, counts, exposures, n: int) -> Draws:
    """Draws of (μ, log τ) from their marginal, on a grid along the axes of its curvature.

    A spline refines the grid, so that the uniform jitter within a cell adds a variance of 10⁻⁴.
    """
    f = lambda x: poisson_log_marginal(x, counts, exposures)  # noqa: E731
    mode = minimize(lambda x: -f(x[None])[0], [0.0, -0.5], method="Nelder-Mead", tol=1e-8).x
    root = np.linalg.cholesky(np.linalg.inv(-curvature(f, mode, 0.3 / np.sqrt(len(counts)))))
    coarse, fine = np.linspace(-7, 7, 43), np.linspace(-7, 7, 421)
    u = np.stack(np.meshgrid(coarse, coarse, indexing="ij"), axis=-1).reshape(-1, 2)
    values = poisson_log_marginal(mode + u @ root.T, counts, exposures).reshape(43, 43)
    values = RectBivariateSpline(coarse, coarse, values)(fine, fine)
    weight = np.exp(values - values.max()).ravel()
    edge = weight.reshape(421, 421)
    if max(edge[0].max(), edge[-1].max(), edge[:, 0].max(), edge[:, -1].max()) > 1e-4:
        raise RuntimeError("the grid of (μ, log τ) is too small")
    cell = rng.choice(len(weight), size=n, p=weight / weight.sum())
    at = np.stack([fine[cell // 421], fine[cell % 421]], axis=1)
    return mode + (at + (fine[1] - fine[0]) * rng.uniform(-0.5, 0.5, size=(n, 2))) @ root.T


def poisson_log_marginal(hyper: Float[np.ndarray, "m 2"], counts, exposures) -> np.ndarray:
    """log p(μ, log τ | counts) up to a constant, the effects integrated out."""
    mu, log_tau = hyper.T
    found = -0.5 * mu**2 + log_tau - 0.5 * np.exp(2 * log_tau)
    size = max(1, 10_000_000 // (41 * len(counts)))
    for low in range(0, len(hyper), size):
        nodes, log_f = _effects_on_grid(hyper[low : low + size], counts, exposures, 41)
        found[low : low + size] += log_integral(nodes, log_f).sum(axis=1)
    return found


def _effects_on_grid(hyper: Float[np.ndarray, "m 2"], counts, exposures, num: int):
    """Nodes of z around its mode, and the log of exp(S η − E e^η − z²/2), η = μ + τ z, there."""
    mu, tau = hyper[:, :1], np.exp(hyper[:, 1:])
    with np.errstate(divide="ignore"):
        z = np.maximum(0, (np.log(counts / exposures) - mu) / tau)
    for _ in range(20):  # from the right of the mode, Newton's method comes down to it
        rate = exposures * np.exp(mu + tau * z)
        z = z + (tau * (counts - rate) - z) / (1 + tau**2 * rate)
    width = 1 / np.sqrt(1 + tau**2 * exposures * np.exp(mu + tau * z))
    nodes = z[..., None] + width[..., None] * np.linspace(-8, 8, num)
    eta = mu[..., None] + tau[..., None] * nodes
    return nodes, counts[:, None] * eta - exposures[:, None] * np.exp(eta) - 0.5 * nodes**2
