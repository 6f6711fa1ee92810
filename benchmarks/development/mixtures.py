"""Twenty mixtures of separate modes that are no Gaussians, each with exact draws."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .base import Case, exact

Vector = Float[Array, " d"]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A normalised density around the origin, and an exact draw of it."""

    log_density: Callable[[Vector], Scalar]
    draw: Callable[[PRNGKeyArray], Vector]


def gaussian(dim: int) -> Shape:
    return Shape(lambda x: jnp.sum(norm.logpdf(x)), lambda key: jax.random.normal(key, (dim,)))


def bananas(dim: int, bend: float = 6.0) -> Shape:
    """Pairs of coordinates (u, v): v is bent by bend (u² − 1) / 4."""
    even, odd = np.arange(0, dim - dim % 2, 2), np.arange(1, dim, 2)

    def unbend(x):
        return x.at[odd].add(-0.25 * bend * (x[even] ** 2 - 1))

    def draw(key):
        x = jax.random.normal(key, (dim,))
        return x.at[odd].add(0.25 * bend * (x[even] ** 2 - 1))

    return Shape(lambda x: jnp.sum(norm.logpdf(unbend(x))), draw)


def funnel(dim: int, scale: float = 1.0) -> Shape:
    def log_density(x):
        return norm.logpdf(x[0], 0, scale) + jnp.sum(norm.logpdf(x[1:], 0, jnp.exp(x[0])))

    def draw(key):
        u = jax.random.normal(key, (dim,))
        return jnp.concatenate([scale * u[:1], jnp.exp(scale * u[0]) * u[1:]])

    return Shape(log_density, draw)


def student(dim: int, nu: float = 4.0) -> Shape:
    constant = gammaln((nu + dim) / 2) - gammaln(nu / 2) - 0.5 * dim * jnp.log(nu * jnp.pi)

    def draw(key):
        normal_key, gamma_key = jax.random.split(key)
        scale = jnp.sqrt(nu / (2 * jax.random.gamma(gamma_key, nu / 2)))
        return jax.random.normal(normal_key, (dim,)) * scale

    return Shape(lambda x: constant - 0.5 * (nu + dim) * jnp.log1p(jnp.sum(x**2) / nu), draw)


def skewed(dim: int) -> Shape:
    """Logarithms of exponential variables: a long tail to the left."""
    return Shape(
        lambda x: jnp.sum(x - jnp.exp(x)),
        lambda key: jnp.log(jax.random.exponential(key, (dim,))),
    )


def _mixture(
    name: str, dim: int, distance: float, parts: list[tuple[float, Shape]], seed: int
) -> Case:
    """The parts in a row, at this distance from each other, with the origin in the middle."""
    direction = np.random.default_rng(seed).normal(size=dim)
    direction *= distance / np.linalg.norm(direction)
    centres = [jnp.asarray((k - (len(parts) - 1) / 2) * direction) for k in range(len(parts))]
    log_shares = jnp.log(jnp.asarray([share for share, _ in parts]))
    shapes = [shape for _, shape in parts]

    def log_density(x):
        terms = [shape.log_density(x - c) for shape, c in zip(shapes, centres, strict=True)]
        return logsumexp(log_shares + jnp.stack(terms))

    def draw(key):
        which, *keys = jax.random.split(key, len(parts) + 1)
        draws = [shape.draw(k) + c for shape, k, c in zip(shapes, keys, centres, strict=True)]
        return jnp.stack(draws)[jax.random.categorical(which, log_shares)]

    return exact(name, log_density, dim, draw)


def cases() -> list[Case]:
    """Shares of 5% to 50%, 2 to 12 dimensions, distances of 6 to 30."""
    made = [
        _mixture("bananas-6", 6, 12, [(0.7, gaussian(6)), (0.3, bananas(6))], 1),
        _mixture("bananas-2", 2, 12, [(0.5, gaussian(2)), (0.5, bananas(2))], 2),
        _mixture("bananas-12", 12, 12, [(0.6, gaussian(12)), (0.4, bananas(12, 3.0))], 3),
        _mixture("bananas-rare", 4, 20, [(0.95, gaussian(4)), (0.05, bananas(4))], 4),
        _mixture("two-bananas", 4, 15, [(0.5, bananas(4)), (0.5, bananas(4, -6.0))], 5),
        _mixture("funnel-4", 4, 12, [(0.75, gaussian(4)), (0.25, funnel(4))], 6),
        _mixture("funnel-8", 8, 20, [(0.5, gaussian(8)), (0.5, funnel(8, 0.7))], 7),
        _mixture("funnel-rare", 3, 10, [(0.9, gaussian(3)), (0.1, funnel(3))], 8),
        _mixture("two-funnels", 3, 25, [(0.6, funnel(3)), (0.4, funnel(3))], 9),
        _mixture("student-2", 2, 30, [(0.5, gaussian(2)), (0.5, student(2))], 10),
        _mixture("student-5", 5, 15, [(0.8, gaussian(5)), (0.2, student(5))], 11),
        _mixture("student-10", 10, 30, [(0.5, student(10)), (0.5, student(10, 6.0))], 12),
        _mixture("student-rare", 3, 20, [(0.9, student(3)), (0.1, student(3))], 13),
        _mixture("skewed-2", 2, 8, [(0.5, gaussian(2)), (0.5, skewed(2))], 14),
        _mixture("skewed-6", 6, 12, [(0.65, gaussian(6)), (0.35, skewed(6))], 15),
        _mixture("skewed-12", 12, 20, [(0.5, skewed(12)), (0.5, skewed(12))], 16),
        _mixture("skewed-rare", 4, 15, [(0.93, skewed(4)), (0.07, gaussian(4))], 17),
        _mixture("banana-funnel", 4, 15, [(0.6, bananas(4, 4.0)), (0.4, funnel(4, 0.8))], 18),
        _mixture(
            "three-shapes", 3, 12, [(0.4, student(3)), (0.3, skewed(3)), (0.3, bananas(3))], 19
        ),
        _mixture("near", 2, 6, [(0.6, skewed(2)), (0.4, student(2))], 20),
    ]
    return made
