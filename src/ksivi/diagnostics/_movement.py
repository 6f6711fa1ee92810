"""Whether chains of Hamiltonian Monte Carlo move the draws of a fit. They should not."""

import dataclasses
import functools

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key
from .._core.hmc import Evaluate
from .._core.mixtures import root_of
from .._core.numerics import generator
from .._core.roots import DenseRoot, Root
from ..results import Posterior
from ..targets import Evaluator, Target
from ._checks import require_fit
from ._differences import Difference, difference
from ._walkers import walkers_from

_ACCEPTANCE, _FIRST_STEP = 0.8, 0.3
_APART = 4
"""Transitions between states of a chain that are kept."""
_STRIDES = (1, 2, 4)
_MAX_CORRELATION = 0.25
"""Kept states count as independent if the rank correlation of neighbours is smaller everywhere."""


@dataclasses.dataclass(frozen=True)
class Movement:
    """Draws before and after Hamiltonian Monte Carlo.

    **Attributes:**

    - `before`, `after`: the draws, one per chain.
    - `difference`: the difference between `before` and `after`.
    - `states`: every fourth state of the last half of a run. The last one is `after`.
    - `lag`: the number of transitions after which a state hardly depends on the one before.
    - `memory`: the rank correlation of before and after, for each coordinate. Near 0 the chains
        have forgotten their start, so that `after` is a sample of the region they reach. Near 1
        they have hardly moved, and show nothing.
    - `settled`: states of every chain that are a `lag` apart. For slow chains these are the ends
        alone.
    - `acceptance`: the mean acceptance rate of the last half of the transitions.
    - `log_densities`: log p of the states.
    - `energy_memory`: the rank correlation of log p at the first and the last of the states. If
        chains drift slowly between a core and heavy tails, it is large, though every coordinate
        forgets its start quickly.
    - `num_transitions`: of each chain, in all runs.
    """

    before: Float[np.ndarray, "n d"]
    states: Float[np.ndarray, "k n d"]
    acceptance: float
    log_densities: Float[np.ndarray, "k n"]
    num_transitions: int = 0

    @property
    def after(self) -> Float[np.ndarray, "n d"]:
        return self.states[-1]

    @property
    def difference(self) -> Difference:
        return difference(self.before, self.after)

    def with_more(self, other: "Movement") -> "Movement":
        """The chains of both, with as many of their last states as both have."""
        sizes = len(self.before), len(other.before)
        kept = min(len(self.states), len(other.states))
        return Movement(
            np.concatenate([self.before, other.before]),
            np.concatenate([self.states[-kept:], other.states[-kept:]], axis=1),
            float(np.average([self.acceptance, other.acceptance], weights=sizes)),
            np.concatenate([self.log_densities[-kept:], other.log_densities[-kept:]], axis=1),
            min(self.num_transitions, other.num_transitions),
        )

    def continued(self, later: "Movement", keep: bool = False) -> "Movement":
        """The same chains after a later run from their ends, with the states before it or without."""
        num = self.num_transitions + later.num_transitions
        if not keep:
            return dataclasses.replace(later, before=self.before, num_transitions=num)
        states = np.concatenate([self.states, later.states])
        log_densities = np.concatenate([self.log_densities, later.log_densities])
        return Movement(self.before, states, later.acceptance, log_densities, num)

    def thinned(self, most: int) -> "Movement":
        """The chains with at most so many states, evenly spaced, the last among them."""
        kept = slice(None, None, -max(1, -(-len(self.states) // most)))
        states, log_densities = self.states[kept][::-1].copy(), self.log_densities[kept][::-1]
        return dataclasses.replace(self, states=states, log_densities=log_densities)

    def halves(self) -> tuple["Movement", "Movement"]:
        """Every other chain, and the rest of them."""
        return self._every_other(0), self._every_other(1)

    def _every_other(self, first: int) -> "Movement":
        return dataclasses.replace(
            self,
            before=self.before[first::2],
            states=self.states[:, first::2],
            log_densities=self.log_densities[:, first::2],
        )

    @property
    def memory(self) -> Float[np.ndarray, " d"]:
        return _rank_correlation(self.before, self.after)

    @property
    def energy_memory(self) -> float:
        first, last = self.log_densities[[0, -1]]
        return float(_rank_correlation(first[:, None], last[:, None])[0])

    @functools.cached_property
    def lag(self) -> int:
        """The number of transitions after which a state hardly depends on the one before."""
        for stride in _STRIDES:
            pairs = zip(self.states[:-stride], self.states[stride:], strict=True)
            correlations = [_rank_correlation(*pair) for pair in pairs]
            if correlations and np.max(np.mean(correlations, axis=0)) < _MAX_CORRELATION:
                return stride * _APART
        return len(self.states) * _APART

    @property
    def pooled(self) -> Float[np.ndarray, "m d"]:
        """All states that were kept, of all chains."""
        return self.states.reshape(-1, self.states.shape[2])

    @property
    def kept(self) -> Float[np.ndarray, "k n d"]:
        """The states of every chain that are a `lag` apart."""
        return self.states[self._independent]

    @property
    def settled(self) -> Float[np.ndarray, "m d"]:
        return self.kept.reshape(-1, self.states.shape[2])

    @property
    def settled_log_densities(self) -> Float[np.ndarray, " m"]:
        """log p of the states of `settled`."""
        return self.log_densities[self._independent].ravel()

    @property
    def _independent(self) -> slice:
        """The states that are a `lag` apart, the last one among them."""
        return slice(None, None, -(self.lag // _APART))


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
    frame: tuple[Float[np.ndarray, " d"], Root] | None = None,
) -> Movement:
    """Runs Hamiltonian Monte Carlo from these draws, in coordinates x = mean + R u.

    The determinant of R is constant, and left out of the log density.

    **Arguments:**

    - `frame`: mean and R. Default: those of the draws, of which there must be more than dimensions.
    """
    mean, root = frame or (before.mean(axis=0), DenseRoot(root_of(before)))
    walkers, kept = walkers_from(rng, evaluate, before, mean, root, num_transitions), []
    log_step, rates = np.log(_FIRST_STEP), np.zeros(num_transitions)
    for t in range(num_transitions):
        rates[t] = walkers.move(float(np.exp(log_step)))
        if t < num_transitions // 2:
            log_step += 2 / np.sqrt(t + 1) * (rates[t] - _ACCEPTANCE)
        elif (num_transitions - 1 - t) % _APART == 0:
            kept.append(walkers.states())
    states, log_densities = map(np.stack, zip(*kept, strict=True))
    acceptance = float(rates[num_transitions // 2 :].mean())
    return Movement(before, states, acceptance, log_densities, num_transitions)


def _rank_correlation(
    first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, " d"]:
    return np.mean(_normalised_ranks(first) * _normalised_ranks(second), axis=0)


def _normalised_ranks(draws: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    ranks = draws.argsort(axis=0).argsort(axis=0) - (len(draws) - 1) / 2
    return ranks / ranks.std(axis=0)
