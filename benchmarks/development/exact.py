"""Densities with exact draws: funnels, heavy tails, modes, rings, bananas, strong correlations."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from .base import Case, exact


def funnel(dim: int = 10, scale: float = 3.0) -> Case:
    """v ~ N(0, scale²), xᵢ ~ N(0, eᵛ)."""

    def log_density(x):
        return norm.logpdf(x[0], 0, scale) + jnp.sum(norm.logpdf(x[1:], 0, jnp.exp(x[0] / 2)))

    def draw(key):
        u = jax.random.normal(key, (dim,))
        return jnp.concatenate([scale * u[:1], jnp.exp(scale * u[0] / 2) * u[1:]])

    return exact(f"funnel-{dim}", log_density, dim, draw)


def heavy_tails(dim: int = 5, nu: float = 3.0) -> Case:
    """A multivariate Student-t with correlations of 0.8."""
    covariance = 0.8 * np.ones((dim, dim)) + 0.2 * np.eye(dim)
    root = jnp.asarray(np.linalg.cholesky(covariance))

    def log_density(x):
        y = jax.scipy.linalg.solve_triangular(root, x, lower=True)
        return -0.5 * (nu + dim) * jnp.log1p(jnp.sum(y**2) / nu)

    def draw(key):
        normal_key, gamma_key = jax.random.split(key)
        scale = jnp.sqrt(nu / (2 * jax.random.gamma(gamma_key, nu / 2)))
        return root @ jax.random.normal(normal_key, (dim,)) * scale

    return exact(f"heavy-tails-{dim}", log_density, dim, draw)


def mixture(dim: int = 2, spread: float = 4.0, weights=(0.5, 0.3, 0.2)) -> Case:
    """Separated Gaussians of unequal weights and widths."""
    rng = np.random.default_rng(dim)
    directions = rng.normal(size=(len(weights), dim))
    means = jnp.asarray(spread * directions / np.linalg.norm(directions, axis=1, keepdims=True))
    sds, log_weights = jnp.linspace(0.6, 1.2, len(weights)), jnp.log(jnp.asarray(weights))

    def log_density(x):
        return logsumexp(log_weights + jnp.sum(norm.logpdf(x, means, sds[:, None]), axis=1))

    def draw(key):
        which_key, normal_key = jax.random.split(key)
        k = jax.random.categorical(which_key, log_weights)
        return means[k] + sds[k] * jax.random.normal(normal_key, (dim,))

    return exact(f"mixture-{dim}", log_density, dim, draw)


def ring(radius: float = 4.0, width: float = 0.3) -> Case:
    """|x| ~ N(radius, width²), the angle uniform."""

    def log_density(x):
        r = jnp.sqrt(jnp.sum(x**2) + 1e-12)
        return norm.logpdf(r, radius, width) - jnp.log(r)

    def draw(key):
        angle_key, radius_key = jax.random.split(key)
        r, angle = (
            radius + width * jax.random.normal(radius_key),
            jax.random.uniform(angle_key, maxval=2 * jnp.pi),
        )
        return r * jnp.stack([jnp.cos(angle), jnp.sin(angle)])

    return exact("ring", log_density, 2, draw)


def chained_bananas(dim: int = 6, noise: float = 0.4) -> Case:
    """x₁ ~ N(0, 1), xᵢ₊₁ ~ N((xᵢ² − 1)/2, noise²) in a chain that wraps its argument softly."""

    def following(x):
        return 0.5 * (x**2 - 1) / (1 + 0.1 * x**2)

    def log_density(x):
        return norm.logpdf(x[0]) + jnp.sum(norm.logpdf(x[1:], following(x[:-1]), noise))

    def draw(key):
        u = jax.random.normal(key, (dim,))

        def step(x, xi):
            x = following(x) + noise * xi
            return x, x

        return jnp.concatenate([u[:1], jax.lax.scan(step, u[0], u[1:])[1]])

    return exact(f"chained-bananas-{dim}", log_density, dim, draw)


def correlated_gaussian(dim: int, condition: float) -> Case:
    """A Gaussian whose covariance has eigenvalues from 1 to `condition`, rotated."""
    rng = np.random.default_rng(dim)
    rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    sds = np.sqrt(np.geomspace(1, condition, dim))
    root, inverse = jnp.asarray(rotation * sds), jnp.asarray((rotation / sds).T)
    mean = jnp.asarray(rng.normal(size=dim) * 3)

    def log_density(x):
        with jax.default_matmul_precision("highest"):
            return -0.5 * jnp.sum((inverse @ (x - mean)) ** 2)

    return exact(
        f"gaussian-{dim}",
        log_density,
        dim,
        lambda key: mean + root @ jax.random.normal(key, (dim,)),
    )


def skewed(dim: int = 8) -> Case:
    """Logarithms of gamma variables of shapes from 0.5 to 4: skewed, with one heavy shoulder."""
    shapes = jnp.linspace(0.5, 4.0, dim)

    def log_density(x):
        return jnp.sum(shapes * x - jnp.exp(x))

    return exact(f"skewed-{dim}", log_density, dim, lambda key: jax.random.loggamma(key, shapes))


def circle_of_modes(num: int = 8, radius: float = 4.0, sd: float = 0.4) -> Case:
    """Equal Gaussians on a circle, with hardly any mass between them."""
    angles = 2 * np.pi * np.arange(num) / num
    means = jnp.asarray(radius * np.stack([np.cos(angles), np.sin(angles)], axis=1))

    def draw(key):
        which_key, normal_key = jax.random.split(key)
        return means[jax.random.randint(which_key, (), 0, num)] + sd * jax.random.normal(
            normal_key, (2,)
        )

    return exact(
        "circle-of-8", lambda x: logsumexp(jnp.sum(norm.logpdf(x, means, sd), axis=1)), 2, draw
    )


def far_scales(dim: int = 12) -> Case:
    """Independent, slightly skewed coordinates of scales from 0.01 to 100, some twenty scales from the origin."""
    scales = jnp.geomspace(0.01, 100.0, dim)
    centres = scales * jnp.linspace(-20.0, 20.0, dim)

    def log_density(x):
        y = (x - centres) / scales
        return jnp.sum(5 * y - 5 * jnp.exp(y))

    def draw(key):
        return centres + scales * (jax.random.loggamma(key, 5.0, (dim,)) - jnp.log(5.0))

    return exact("far-scales-12", log_density, dim, draw)


def log_gamma() -> Case:
    """The logarithm of one gamma variable of shape 2: a single, skewed coordinate."""
    return exact(
        "log-gamma-1",
        lambda x: 2 * x[0] - jnp.exp(x[0]),
        1,
        lambda key: jax.random.loggamma(key, 2.0, (1,)),
    )


def two_modes(dim: int = 10, gap: float = 6.0) -> Case:
    """Gaussians of weights 0.65 and 0.35, six standard deviations apart along the diagonal."""
    mean, log_weights = jnp.full(dim, gap / 2 / dim**0.5), jnp.log(jnp.array([0.65, 0.35]))

    def log_density(x):
        parts = jnp.stack([jnp.sum(norm.logpdf(x, -mean)), jnp.sum(norm.logpdf(x, mean))])
        return logsumexp(log_weights + parts)

    def draw(key):
        which_key, normal_key = jax.random.split(key)
        sign = jnp.where(jax.random.bernoulli(which_key, 0.35), 1.0, -1.0)
        return sign * mean + jax.random.normal(normal_key, (dim,))

    return exact("two-modes-10", log_density, dim, draw)


def twisted(dim: int = 4, bend: float = 1.0) -> Case:
    """x₁ ~ N(0, 2²), x₂ ~ N(bend (x₁² − 4)/4, 0.5²), the rest N(x₁/2, 1): one sharp bend and correlations."""

    def following(x):
        return bend * (x**2 - 4) / 4

    def log_density(x):
        rest = jnp.sum(norm.logpdf(x[2:], x[0] / 2))
        return norm.logpdf(x[0], 0, 2) + norm.logpdf(x[1], following(x[0]), 0.5) + rest

    def draw(key):
        u = jax.random.normal(key, (dim,))
        first = 2 * u[0]
        return jnp.concatenate(
            [jnp.stack([first, following(first) + 0.5 * u[1]]), first / 2 + u[2:]]
        )

    return exact("twisted-4", log_density, dim, draw)


def crossing_modes(dim: int = 4) -> Case:
    """A wide Gaussian of weight 0.7 and a narrow one of weight 0.3, correlated in opposite directions."""
    rng = np.random.default_rng(20)
    means = jnp.asarray(np.stack([np.zeros(dim), np.linspace(4, -4, dim)]))
    wide = np.eye(dim) + 0.6 * (np.ones((dim, dim)) - np.eye(dim))
    turned = np.linalg.qr(rng.normal(size=(dim, dim)))[0] * np.linspace(0.3, 0.8, dim)
    roots = np.stack([np.linalg.cholesky(wide), np.linalg.cholesky(turned @ turned.T)])
    log_scale = jnp.asarray(np.log(np.abs(np.linalg.det(roots))))
    inverses, roots = jnp.asarray(np.linalg.inv(roots)), jnp.asarray(roots)
    log_weights = jnp.log(jnp.array([0.7, 0.3]))

    def log_density(x):
        scaled = jnp.einsum("kij,kj->ki", inverses, x - means)
        return logsumexp(log_weights - log_scale + jnp.sum(norm.logpdf(scaled), axis=1))

    def draw(key):
        which_key, normal_key = jax.random.split(key)
        k = jax.random.categorical(which_key, log_weights)
        return means[k] + roots[k] @ jax.random.normal(normal_key, (dim,))

    return exact(f"crossing-modes-{dim}", log_density, dim, draw)


def cases() -> list[Case]:
    return [
        funnel(10),
        funnel(3, 1.5),
        heavy_tails(5),
        mixture(2),
        mixture(5),
        ring(),
        chained_bananas(6),
        correlated_gaussian(50, 1e4),
        skewed(8),
        circle_of_modes(),
        far_scales(),
        log_gamma(),
        two_modes(),
        twisted(),
        crossing_modes(),
    ]
