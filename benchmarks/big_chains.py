"""The truth of the horseshoe by long chains of Gibbs sampling, in double precision. They can run on a GPU.

It raises `RuntimeError` where the chains do not agree.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Draws = Float[np.ndarray, "n d"]


def checked(draws: Float[np.ndarray, "c n d"]) -> Draws:
    """The draws of all chains, if these agree: R-hat below 1.01, and 400 effective draws."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    r_hat = float(np.max(split_gelman_rubin(draws)))
    ess = float(np.min(effective_sample_size(draws)))
    print(f"R-hat {r_hat:.4f}, ESS {ess:.0f}", flush=True)
    if not (r_hat < 1.01 and ess >= 400):
        raise RuntimeError(f"the chains do not agree: R-hat {r_hat:.3f}, ESS {ess:.0f}")
    return draws.reshape(-1, draws.shape[-1])


def horseshoe(
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, " n"],
    tau_scale: float,
    variance_prior: tuple[float, float],
    num_chains: int = 20,
    num_draws: int = 1_000,
    thin: int = 20,
) -> Draws:
    """Draws of (log τ, log λ, z, log v) by Gibbs sampling, since NUTS diverges in the tails of the scales.

    The conditionals are those of `development.gibbs`. β is drawn by a solution in n dimensions, not p.

    Reference: Bhattacharya et al., Fast sampling with Gaussian scale mixture priors, 2016.
    """
    with jax.enable_x64(True):
        sweep = _gibbs_sweep(
            jnp.asarray(x, float), jnp.asarray(y, float), tau_scale, variance_prior
        )
        ones = jnp.ones((num_chains, x.shape[1]))
        state = (ones, ones, ones[:, 0], ones[:, 0], ones[:, 0])

        @jax.jit
        def kept(state, key):
            keys = jax.random.split(key, (thin, num_chains))
            step = lambda state, keys: jax.vmap(sweep)(keys, state)  # noqa: E731
            state, draws = jax.lax.scan(step, state, keys)
            return state, draws[-1]

        draws = []
        for i, key in enumerate(jax.random.split(jax.random.key(7), num_draws + num_draws // 4)):
            state, draw = kept(state, key)
            draws += [np.asarray(draw)] if i >= num_draws // 4 else []
    return checked(np.stack(draws, axis=1))


def _gibbs_sweep(x: Array, y: Array, tau_scale: float, variance_prior: tuple[float, float]):
    """One sweep of a chain: key and (λ², ν, τ², ξ, v) to the next ones, and the draw."""
    n, p = x.shape

    def inverse_gamma(key, shape, scale):
        return scale / jax.random.gamma(key, shape, jnp.shape(scale))

    def sweep(key, state):
        lam2, nu, tau2, xi, v = state
        keys = jax.random.split(key, 7)
        prior, phi = tau2 * lam2, x / jnp.sqrt(v)
        u = jnp.sqrt(prior) * jax.random.normal(keys[0], (p,))
        gap = y / jnp.sqrt(v) - phi @ u - jax.random.normal(keys[1], (n,))
        root = jax.scipy.linalg.cho_factor((phi * prior[None]) @ phi.T + jnp.eye(n))
        beta = u + prior * (phi.T @ jax.scipy.linalg.cho_solve(root, gap))
        lam2 = inverse_gamma(keys[2], 1.0, 1 / nu + beta**2 / (2 * tau2))
        nu = inverse_gamma(keys[3], 1.0, 1 + 1 / lam2)
        tau2 = inverse_gamma(keys[4], (p + 1) / 2, 1 / xi + jnp.sum(beta**2 / (2 * lam2)))
        xi = inverse_gamma(keys[5], 1.0, 1 / tau_scale**2 + 1 / tau2)
        shape, scale = variance_prior
        v = inverse_gamma(keys[6], shape + n / 2, scale + jnp.sum((y - x @ beta) ** 2) / 2)
        z = beta / jnp.sqrt(tau2 * lam2)
        draw = (jnp.log(tau2)[None] / 2, jnp.log(lam2) / 2, z, jnp.log(v)[None])
        return (lam2, nu, tau2, xi, v), jnp.concatenate(draw)

    return sweep
