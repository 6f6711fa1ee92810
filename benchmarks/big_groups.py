r"""The truth of a negative binomial regression with effects (a_g, b_g) of groups, by quadrature in two dimensions.

Given the hyperparameters (μ_a, log τ_a, μ_b, log τ_b, log φ) the groups are independent:

    p(y | hyper) = ∏_g ∫∫ exp ℓ_g(a, b, φ) N(a; μ_a, τ_a) N(b; μ_b, τ_b) da db,
    ℓ_g = ∑_{i ∈ g} yᵢ ηᵢ − (yᵢ + φ) log(φ + exp ηᵢ),  ηᵢ = a + b xᵢ,

besides terms of (y, φ) alone. ℓ_g is tabulated once, over equally spaced nodes along the axes of its group's curvature
and over Chebyshev nodes of log φ. After that no row is read again.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy.polynomial.chebyshev import chebvander
from scipy.special import gammaln

from .big_grid import draw_index, lagrange, shifted
from .big_weights import Peak, number_of_draws, peak, resampled

Draws = Float[np.ndarray, "n d"]
Hyper = Float[np.ndarray, "m 5"]
Vector = Float[np.ndarray, " n"]

_REACH, _NODES = 9.6, 33
"""The nodes of each effect go so many widths to both sides."""
_SHAPES = 9.0
"""The polynomials in log φ hold so many widths to both sides."""
_BATCH = 8
_DEGREES_OF_FREEDOM = 40.0
_EDGE, _RULE = 1e-6, 0.03
"""The most mass at an end of the nodes, and the most nats by which half of the nodes may change an integral.

The error of the rule falls as exp(−c/Δ²), so that of all nodes is about the fourth power of that of half of them."""
_START, _STEPS = np.array([0.0, -0.5, 0.0, -0.5, 0.5]), np.full(5, 0.2)


def negative_binomial(
    x: Vector, group: Int[np.ndarray, " n"], y: Vector, groups: int, n: int | None = None
) -> Draws:
    """Draws of (μ_a, log τ_a, μ_b, log τ_b, log φ, a, b).

    A t distribution at the mode proposes hyperparameters, whose weights are exact.
    """
    rng, rows = np.random.default_rng(7), Rows(x, group, y, groups)
    n = n or number_of_draws(2 * groups)
    table = Table(rows, peak(rows.laplace, _START, _STEPS))
    hyper, log_q = _proposed(rng, peak(table.log_marginal, table.at.mode, table.steps), n)
    effects, log_p = np.empty((n, 2 * groups)), np.empty(n)
    for low in range(0, n, _BATCH):
        some = slice(low, low + _BATCH)
        log_p[some], effects[some] = table.drawn(rng, hyper[some])
    return resampled(rng, np.concatenate([hyper, effects], axis=1), log_p - log_q)


def _proposed(rng: np.random.Generator, at: Peak, n: int) -> tuple[Hyper, Float[np.ndarray, " n"]]:
    """Draws of a t distribution, and their log density up to a constant."""
    nu, dim = _DEGREES_OF_FREEDOM, len(at.mode)
    away = rng.normal(size=(n, dim)) / np.sqrt(rng.chisquare(nu, size=(n, 1)) / nu)
    log_q = -0.5 * (nu + dim) * np.log1p(np.sum(away**2, axis=1) / nu)
    return at.mode + away @ at.root.T, log_q


def log_prior(hyper: Hyper) -> Float[np.ndarray, " m"]:
    """μ ~ N(0, 1), τ ~ N⁺(0, 1), log φ ~ N(1, 1), with the Jacobians of log τ."""
    mean_a, log_a, mean_b, log_b, log_shape = hyper.T
    scales = log_a + log_b - 0.5 * (np.exp(2 * log_a) + np.exp(2 * log_b))
    return scales - 0.5 * (mean_a**2 + mean_b**2 + (log_shape - 1) ** 2)


class Rows:
    """The rows, sorted by group, and Laplace's approximation of the marginal, which finds where to tabulate."""

    def __init__(self, x: Vector, group: Int[np.ndarray, " n"], y: Vector, groups: int):
        order = np.argsort(group, kind="stable")
        self.x, self.y = np.asarray(x, float)[order], np.asarray(y, float)[order]
        self.group, self.groups = np.asarray(group)[order], groups
        self.bounds = np.searchsorted(self.group, np.arange(groups + 1))
        self.counts, self.times = np.unique(self.y, return_counts=True)
        self.effects = np.zeros((groups, 2))

    def of_counts(self, log_shape: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """∑ᵢ log Γ(yᵢ + φ) − log Γ(φ) + φ log φ."""
        shape = np.exp(log_shape)[:, None]
        terms = gammaln(self.counts + shape) - gammaln(shape) + shape * log_shape[:, None]
        return terms @ self.times

    def laplace(self, hyper: Hyper) -> Float[np.ndarray, " m"]:
        return np.array([self._laplace(one) for one in hyper])

    def _laplace(self, hyper: Float[np.ndarray, " 5"]) -> float:
        """The integral of each group by its mode and curvature. The next call starts at these modes."""
        mean, precision = hyper[[0, 2]], np.exp(-2 * hyper[[1, 3]])
        self.effects, curvature, log_f = self.modes(hyper, self.effects)
        away = -0.5 * np.sum(precision * (self.effects - mean) ** 2)
        logs = np.log(precision).sum() * self.groups - np.linalg.slogdet(curvature)[1].sum()
        known = log_prior(hyper[None])[0] + self.of_counts(hyper[4:])[0]
        return float(known + log_f + away + 0.5 * logs)

    def modes(self, hyper: Float[np.ndarray, " 5"], start: Float[np.ndarray, "g 2"]):
        """The modes of (a, b) of all groups by Newton's method, minus the Hessians there, and ∑ ℓ."""
        mean, precision, shape = hyper[[0, 2]], np.exp(-2 * hyper[[1, 3]]), np.exp(hyper[4])
        effects, sums = start, lambda v: np.bincount(self.group, v, self.groups)
        for _ in range(30):
            eta = effects[self.group, 0] + effects[self.group, 1] * self.x
            rate = np.exp(np.minimum(eta, 30))
            slope = self.y - (self.y + shape) * rate / (shape + rate)
            bend = (self.y + shape) * shape * rate / (shape + rate) ** 2
            score = np.stack([sums(slope), sums(slope * self.x)], axis=1)
            score -= precision * (effects - mean)
            cross = sums(bend * self.x)
            hessian = np.array([[sums(bend), cross], [cross, sums(bend * self.x**2)]])
            curvature = np.moveaxis(hessian, 2, 0) + np.diag(precision)
            step = np.linalg.solve(curvature, score[..., None])[..., 0]
            if np.sum(step * score) < 1e-9:
                break
            effects = effects + step / np.maximum(1, np.abs(step).max(axis=1, keepdims=True))
        log_f = np.sum(self.y * eta - (self.y + shape) * np.log(shape + rate))
        return effects, curvature, log_f


class Table:
    r"""ℓ_g at nodes (a, b), as a polynomial in log φ.

    The log of the integrand is linear in Chebyshev's polynomials of log φ and in a², a, b², b. With these as rows of
    one matrix, its values at all nodes of all groups are one product.
    """

    def __init__(self, rows: Rows, at: Peak):
        self.rows, self.at, self.groups = rows, at, rows.groups
        self.steps = np.linalg.norm(at.root, axis=1)
        modes, curvature, _ = rows.modes(at.mode, rows.effects)
        self.modes, self.root = modes, np.linalg.cholesky(np.linalg.inv(curvature))
        self.line = np.linspace(-_REACH, _REACH, _NODES)
        away = np.stack(np.meshgrid(self.line, self.line, indexing="ij"), axis=-1).reshape(-1, 2)
        a, b = np.moveaxis(modes[:, None] + away @ np.swapaxes(self.root, 1, 2), 2, 0)
        self.range = _SHAPES * self.steps[4]
        self.degree = 6 + int(np.ceil(8 * self.range))  # ℓ is analytic up to log φ = η ± iπ
        places = np.cos(np.pi * (np.arange(self.degree + 1) + 0.5) / (self.degree + 1))
        values = self._tabulated(a, b, np.exp(at.mode[4] + self.range * places))
        fitted = np.linalg.solve(chebvander(places, self.degree), values)
        self.matrix = np.concatenate([fitted, *(v.reshape(1, -1) for v in (a**2, a, b**2, b))])

    def _tabulated(self, a, b, shapes: Float[np.ndarray, " j"]) -> Float[np.ndarray, "j gk"]:
        found = np.zeros((len(shapes), *a.shape))
        for g in range(self.groups):
            some = slice(self.rows.bounds[g], self.rows.bounds[g + 1])
            x, y = self.rows.x[some], self.rows.y[some]
            eta = a[g] + np.outer(x, b[g])
            rate = np.exp(eta)
            for j, shape in enumerate(shapes):
                found[j, g] = y @ eta - (y + shape) @ np.log(shape + rate)
        return found.reshape(len(shapes), -1)

    def log_marginal(self, hyper: Hyper) -> Float[np.ndarray, " m"]:
        """log p(hyper | y) up to a constant."""
        parts = [hyper[low : low + _BATCH] for low in range(0, len(hyper), _BATCH)]
        return np.concatenate([self._integrated(part, self._integrand(part))[0] for part in parts])

    def _integrand(self, hyper: Hyper) -> Float[np.ndarray, "m g k k"]:
        """The log of exp ℓ_g N(a; μ_a, τ_a) N(b; μ_b, τ_b) at the nodes, up to a constant of the hyperparameters."""
        away = (hyper[:, 4] - self.at.mode[4]) / self.range
        precision = np.exp(-2 * hyper[:, [1, 3]])
        pulls = [-0.5 * precision, hyper[:, [0, 2]] * precision]
        normals = np.stack(pulls, axis=2).reshape(-1, 4)
        powers = chebvander(away, self.degree)
        found = np.concatenate([powers, normals], axis=1) @ self.matrix
        return found.reshape(len(hyper), self.groups, _NODES, _NODES)

    def _integrated(self, hyper: Hyper, log_f: Float[np.ndarray, "m g k k"]):
        """log p(hyper | y), and the integrand with its second effect integrated out."""
        highest = log_f.max(axis=(2, 3))
        over = np.exp(log_f - highest[..., None, None]).sum(axis=3)
        precision = np.exp(-2 * hyper[:, [1, 3]])
        normal = (
            -0.5 * np.sum(hyper[:, [0, 2]] ** 2 * precision, axis=1) - hyper[:, 1] - hyper[:, 3]
        )
        found = log_prior(hyper) + self.rows.of_counts(hyper[:, 4]) + self.groups * normal
        return found + np.sum(highest + np.log(over.sum(axis=2)), axis=1), over

    def drawn(self, rng: np.random.Generator, hyper: Hyper):
        """log p(hyper | y), and a draw of (a, b) of all groups: one coordinate, then the other given it."""
        log_f = self._integrand(hyper)
        found, over = self._integrated(hyper, log_f)
        _check(over)
        index, offset = _drawn_between(rng, np.log(np.maximum(over, 1e-300)))
        near = index[..., None] + np.arange(-2, 4)
        lines = np.take_along_axis(log_f, near[..., None], axis=2)
        line = np.einsum("mgj,mgjk->mgk", lagrange(offset), lines)
        _check(np.exp(line - line.max(axis=2, keepdims=True)))
        other = np.add(*_drawn_between(rng, line))
        away = np.stack([index + offset, other], axis=-1) * (self.line[1] - self.line[0]) - _REACH
        effects = self.modes + np.einsum("gij,mgj->mgi", self.root, away)
        return found, np.swapaxes(effects, 1, 2).reshape(len(hyper), -1)


def _drawn_between(rng: np.random.Generator, log_f: Float[np.ndarray, "m g k"]):
    """A draw of each density, as a node and an offset in units of the spacing."""
    offset = rng.uniform(size=log_f.shape[:-1])
    return draw_index(rng, shifted(log_f, offset)) + 2, offset


def _check(density: Float[np.ndarray, "m g k"]) -> None:
    """Refuses nodes that are too few or too close to the mode."""
    total = density.sum(axis=-1)
    edge = np.max(density[..., [0, -1]] / total[..., None])
    change = np.max(np.abs(np.log(2 * density[..., ::2].sum(axis=-1) / total)))
    if not (edge < _EDGE and change < _RULE):
        raise RuntimeError(
            f"the nodes of the effects do not do: {edge:.1e} of the mass at an end, "
            f"{change:.1e} nats from half of the nodes"
        )
