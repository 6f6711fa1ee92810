"""What `ksivi.fit` is compared with: Laplace, Pathfinder, Gaussian variational families, flows, and NUTS."""

import functools
from collections.abc import Callable

import jax
import numpyro
import numpyro.distributions as dist
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, autoguide

import ksivi
from ksivi.families import Empirical

Draws = Float[Array, "n d"]
Rival = Callable[[PRNGKeyArray, ksivi.Target], ksivi.Posterior]

_DRAWS = 4_000
_STEPS = 10_000
_CHAINS, _PER_CHAIN = 4, 500


def _stored(target: ksivi.Target, draws: Draws) -> ksivi.Posterior:
    return ksivi.Posterior.of(Empirical(draws), target)


def _guided(make: Callable, rate: float = 1e-2, particles: int = 10) -> Rival:
    """A NumPyro guide, trained on the evidence bound with a cosine from `rate` to 0."""

    def fit(key: PRNGKeyArray, target: ksivi.Target) -> ksivi.Posterior:
        def model() -> None:
            x = numpyro.sample(
                "x", dist.ImproperUniform(dist.constraints.real_vector, (), (target.dim,))
            )
            numpyro.factor("p", target.log_density(x))

        train_key, draw_key = jax.random.split(key)
        guide = make(model, init_loc_fn=numpyro.infer.init_to_uniform(radius=0.5))
        optimizer = optax.adam(optax.cosine_decay_schedule(rate, _STEPS))
        svi = SVI(model, guide, optimizer, Trace_ELBO(num_particles=particles))
        result = svi.run(train_key, _STEPS, progress_bar=False, stable_update=True)
        return _stored(
            target, guide.sample_posterior(draw_key, result.params, sample_shape=(_DRAWS,))["x"]
        )

    return fit


def _pathfinder(key: PRNGKeyArray, target: ksivi.Target) -> ksivi.Posterior:
    from blackjax.vi import pathfinder  # type: ignore[import-untyped]

    start_key, path_key, draw_key = jax.random.split(key, 3)
    start = 0.5 * jax.random.normal(start_key, (target.dim,))
    state, _ = jax.jit(lambda k, x: pathfinder.approximate(k, target.log_density, x))(
        path_key, start
    )
    return _stored(target, pathfinder.sample(draw_key, state, _DRAWS)[0])


def _nuts(chain_method: str, key: PRNGKeyArray, target: ksivi.Target) -> ksivi.Posterior:
    """NumPyro's own, as it comes. Its chains begin where NumPyro begins those of a model."""
    start_key, run_key = jax.random.split(key)
    start = jax.random.uniform(start_key, (_CHAINS, target.dim), minval=-2.0, maxval=2.0)
    kernel = NUTS(potential_fn=lambda x: -target.log_density(x))
    chains = MCMC(
        kernel,
        num_warmup=_PER_CHAIN,
        num_samples=_PER_CHAIN,
        num_chains=_CHAINS,
        chain_method=chain_method,
        progress_bar=False,
    )
    chains.run(run_key, init_params=start)
    return _stored(target, chains.get_samples())


RIVALS: dict[str, Rival] = {
    "Laplace": _guided(autoguide.AutoLaplaceApproximation),
    "Pathfinder": _pathfinder,
    "mean-field": _guided(autoguide.AutoNormal),
    "full rank": _guided(autoguide.AutoMultivariateNormal),
    "IAF": _guided(autoguide.AutoIAFNormal, rate=1e-3),
    "NUTS": functools.partial(_nuts, "sequential"),
    "NUTS, vectorized": functools.partial(_nuts, "vectorized"),
}
"""By name. The variational ones have 10,000 steps of 10 draws each, NUTS four chains of 500 draws after 500.

On one CPU, NumPyro runs chains one after another. Vectorized chains are often quicker, but users must ask for them.
"""
