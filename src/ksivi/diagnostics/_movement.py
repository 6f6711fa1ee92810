"""Whether chains of Hamiltonian Monte Carlo move the draws of a fit. They should not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key
from .._core.compile import one_shot
from .._core.hmc import Place, hmc_transition
from ..results import Posterior
from ..targets import Target
from ._checks import require_fit
from ._differences import Difference, difference

_ACCEPTANCE, _FIRST_STEP = 0.8, 0.3


@dataclasses.dataclass(frozen=True)
class Movement:
    """Draws before and after Hamiltonian Monte Carlo.

    **Attributes:**

    - `before`, `after`: the draws, one per chain.
    - `difference`: the difference between them.
    - `memory`: the rank correlation of before and after, for each coordinate. Near 0 the chains
        have forgotten their start, so that `after` is a sample of the region they reach. Near 1
        they have hardly moved, and show nothing.
    - `acceptance`: the mean acceptance rate of the last half of the transitions.
    """

    before: Float[np.ndarray, "n d"]
    after: Float[np.ndarray, "n d"]
    acceptance: float

    @property
    def difference(self) -> Difference:
        return difference(self.before, self.after)

    def with_more(self, other: "Movement") -> "Movement":
        """The chains of both."""
        return Movement(
            np.concatenate([self.before, other.before]),
            np.concatenate([self.after, other.after]),
            0.5 * (self.acceptance + other.acceptance),
        )

    @property
    def memory(self) -> Float[np.ndarray, " d"]:
        before, after = (_normalised_ranks(draws) for draws in (self.before, self.after))
        return np.mean(before * after, axis=0)


def movement(
    key: PRNGKeyArray,
    target: Target,
    posterior: Posterior,
    *,
    num_chains: int = 1_000,
    num_transitions: int = 40,
) -> Movement:
    r"""Runs Hamiltonian Monte Carlo from every draw, in coordinates whitened by the draws.

    Draws from the target stay draws from the target. Other draws move towards it, but not between
    separate modes.

    **Arguments:**

    - `num_chains`: the number of chains.
    - `num_transitions`: transitions per chain, of eight leapfrog steps each. In the first half the
        step size adapts to an acceptance rate of 0.8. It is jittered, so that some chains take
        small steps into narrow regions.

    ```python
    moved = ksivi.diagnostics.movement(jax.random.key(3), target, fit.posterior, num_chains=200)
    print(moved.difference)
    ```
    """
    require_fit(target, posterior, "movement")
    draw_key, run_key = jax.random.split(as_single_key(key))
    before = posterior.sample(draw_key, as_count(num_chains, "num_chains", minimum=2))
    root = _root(np.asarray(before, np.float64))
    whitened = target.unwhitened().whitened(
        jnp.mean(before, axis=0), jnp.asarray(root, before.dtype)
    )
    after, acceptance = _run(
        run_key, whitened, before, as_count(num_transitions, "num_transitions", minimum=2)
    )
    return Movement(
        np.asarray(before, np.float64), np.asarray(after, np.float64), float(acceptance)
    )


def _root(draws: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    return np.linalg.cholesky(covariance + 1e-8 * np.diag(np.diag(covariance)))


@one_shot
def _run(key: PRNGKeyArray, target: Target, before: Float[Array, "n d"], num_transitions: int):
    assert target.coordinates is not None
    u = jax.vmap(target.coordinates.inverse)(before)
    evaluate = lambda u: Place(u, *target.log_density_and_score(u))  # noqa: E731

    def transition(carry, inputs):
        places, log_step = carry
        key, t = inputs
        keys = jax.random.split(key, len(u))
        places, accepted = jax.vmap(
            lambda k, place: hmc_transition(k, evaluate, place, jnp.exp(log_step))
        )(keys, places)
        rate = jnp.mean(accepted)
        learning = jnp.where(t < num_transitions // 2, 2 / jnp.sqrt(t + 1.0), 0).astype(
            log_step.dtype
        )
        return (places, log_step + learning * (rate - _ACCEPTANCE)), rate

    places = jax.vmap(evaluate)(u)
    inputs = (jax.random.split(key, num_transitions), jnp.arange(num_transitions))
    (places, _), rates = lax.scan(
        transition, (places, jnp.log(jnp.asarray(_FIRST_STEP, u.dtype))), inputs
    )
    return jax.vmap(target.coordinates)(places.x), jnp.mean(rates[num_transitions // 2 :])


def _normalised_ranks(draws: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    ranks = draws.argsort(axis=0).argsort(axis=0) - (len(draws) - 1) / 2
    return ranks / ranks.std(axis=0)
