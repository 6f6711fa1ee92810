"""Gibbs sampling of a horseshoe regression, whose conditionals are all in closed form."""

import numpy as np
from jaxtyping import Float

_CHAINS, _WARMUP, _KEPT, _THINNING = 40, 1_000, 500, 40


def horseshoe_by_gibbs(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    tau_scale: float,
    variance_prior: tuple[float, float],
) -> dict[str, np.ndarray]:
    r"""Draws of y ~ N(x β, v), βᵢ ~ N(0, τ² λᵢ²), λᵢ ~ C⁺(1), τ ~ C⁺(a), v ~ IG(b, c), unconstrained, by site.

    A half-Cauchy is a mixture of inverse gammas, λ² | ν ~ IG(½, 1/ν) with ν ~ IG(½, 1): every conditional is then
    normal or inverse gamma.

    Reference: Makalic and Schmidt, A simple sampler for the horseshoe estimator, 2016.
    """
    rng = np.random.default_rng(0)
    inverse_gamma = lambda shape, scale: scale / rng.gamma(shape, size=np.shape(scale))  # noqa: E731
    n, d = x.shape
    lam2, nu, tau2, xi, v = np.ones((_CHAINS, d)), np.ones((_CHAINS, d)), *np.ones((3, _CHAINS))
    kept = []
    for step in range(_WARMUP + _KEPT * _THINNING):
        beta = _normal(rng, x, y, v, tau2[:, None] * lam2)
        lam2 = inverse_gamma(1.0, 1 / nu + beta**2 / (2 * tau2[:, None]))
        nu = inverse_gamma(1.0, 1 + 1 / lam2)
        tau2 = inverse_gamma((d + 1) / 2, 1 / xi + np.sum(beta**2 / (2 * lam2), axis=1))
        xi = inverse_gamma(1.0, 1 / tau_scale**2 + 1 / tau2)
        v = inverse_gamma(
            variance_prior[0] + n / 2, variance_prior[1] + np.sum((y - beta @ x.T) ** 2, axis=1) / 2
        )
        if step >= _WARMUP and step % _THINNING == 0:
            z = beta / np.sqrt(tau2[:, None] * lam2)
            kept.append((np.log(tau2) / 2, np.log(lam2) / 2, z, np.log(v)))
    names = ("tau", "lambda", "z", "variance")
    return {name: np.concatenate([draw[i] for draw in kept]) for i, name in enumerate(names)}


def _normal(rng, x, y, v, prior_variance):
    """β given the rest, one a chain: precision xᵀx / v + 1 / (τ² λ²)."""
    precision = x.T @ x / v[:, None, None] + np.eye(x.shape[1]) / prior_variance[:, None, :]
    root = np.linalg.cholesky(precision)
    half = np.linalg.solve(root, (x.T @ y / v[:, None])[..., None])
    noise = rng.normal(size=half.shape)
    return np.linalg.solve(np.swapaxes(root, 1, 2), half + noise)[..., 0]
