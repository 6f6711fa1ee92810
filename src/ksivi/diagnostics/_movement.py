"""Whether chains of Hamiltonian Monte Carlo move the draws of a fit. They should not."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key
from .._core.hmc import Evaluate, Place, hmc_transition, where_finite
from .._core.mixtures import root_of
from .._core.numerics import generator
from ..results import Posterior
from ..targets import Evaluator, Target
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
        sizes = len(self.before), len(other.before)
        return Movement(
            np.concatenate([self.before, other.before]),
            np.concatenate([self.after, other.after]),
            float(np.average([self.acceptance, other.acceptance], weights=sizes)),
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
    num_transitions = as_count(num_transitions, "num_transitions", minimum=2)
    before = posterior.sample(draw_key, as_count(num_chains, "num_chains", minimum=2))
    draws = np.asarray(before, np.float64)
    return chains(generator(run_key), Evaluator(target), draws, num_transitions)


def chains(
    rng: np.random.Generator,
    evaluate: Evaluate,
    before: Float[np.ndarray, "n d"],
    num_transitions: int = 40,
) -> Movement:
    """Runs Hamiltonian Monte Carlo from these draws, in coordinates x = mean + R u of the draws.

    The determinant of R is constant, and left out of the log density.
    """
    mean, root = before.mean(axis=0), root_of(before)

    @np.errstate(all="ignore")
    def at(u: Float[np.ndarray, "n d"]) -> Place:
        log_densities, scores = where_finite(evaluate, mean + u @ root.T)
        return Place(u, log_densities, scores @ root)

    place = at(np.linalg.solve(root, (before - mean).T).T)
    log_step, rates = np.log(_FIRST_STEP), np.zeros(num_transitions)
    for t in range(num_transitions):
        place, accepted = hmc_transition(rng, at, place, np.exp(log_step))
        rates[t] = accepted.mean()
        if t < num_transitions // 2:
            log_step += 2 / np.sqrt(t + 1) * (rates[t] - _ACCEPTANCE)
    return Movement(before, mean + place.x @ root.T, float(rates[num_transitions // 2 :].mean()))


def _normalised_ranks(draws: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    ranks = draws.argsort(axis=0).argsort(axis=0) - (len(draws) - 1) / 2
    return ranks / ranks.std(axis=0)
