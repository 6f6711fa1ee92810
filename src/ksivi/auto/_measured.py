"""What importance weights and chains show of a posterior's draws."""

import dataclasses
import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._core.numerics import leading_axes
from ..diagnostics import (
    WIDENING,
    Difference,
    Importance,
    Movement,
    chains,
    difference,
    khat_threshold,
    pareto_khat,
    truncated_weights,
    weighted,
)
from ..families import ModeMixing, SemiImplicit
from ..results import Posterior
from ..targets import Evaluator
from ._modes import Modes

Draws = Float[np.ndarray, "n d"]

LARGE_DIM = 150
"""Above it, answers are warped Gaussians, and all costs are of few draws and few directions."""
_NUM_AXES = 32

NUM_MIXING = 1_000
"""The number of z in each density."""
_NUM_WEIGHED, _FEW_WEIGHED = 8_000, 1_000
"""The number of weighted draws; few in many dimensions, where weights hardly ever decide."""
_SURE_KHAT, _SURE_SHARE = 0.5, 0.7
"""Weights with lighter tails, most of which count, can show alone that the draws are good."""
_NUM_DRAWS, _MOST_NUMBERS = 10_000, 8_000_000
"""Draws that are compared, if their coordinates are not more numbers than this."""
_NUM_LIKELY = 2_000
"""Draws whose log density is compared with that of the chains' states."""
_FEW_CHAINS, _FEW_TRANSITIONS = 200, 20
_BATCHES, _MORE_RUNS = 4, 3
"""Chains come in batches. Four of them have one chain per draw that is wanted, if chains are so
slow that only their ends count. They run on at most three times to decide about tails."""
_QUICK_LAG, _LONGER, _MOST_TRANSITIONS = 4, 10, 160
"""Chains that forget their states within 4 transitions are long enough. Others go on for 10 times
as many transitions as they need to forget: a narrow region that draws miss fills slowly."""
_CHAINS_PER_DIM = 3
"""Chains move in coordinates that their first states whiten."""
_MAX_KHAT = 1.0
"""Above this the mean of the weights does not exist. Shares need less than the verdict does."""
_SMALLEST = 1e-3
"""A share is not set below this, so that a mode can return."""
_TINY = 1e-30


@dataclasses.dataclass(frozen=True)
class Measured:
    """Draws, and what weights and chains make of them.

    The wider weights decide the verdict and give the log evidence. The plain ones raise no doubt:
    they give the ELBO, and the k-hat and the effective share that a fit prints.

    **Attributes:**

    - `plain`, `weighed`: weighted draws of the posterior, and of a wider one.
    - `moved`: chains from other draws.
    - `is_sure`: whether the weights have shown alone that the draws are good.
    - `has_settled`: whether the chains were run before, until they had settled.
    - `log_densities`: log p of some of the draws; None in many dimensions.
    """

    draws: Draws
    plain: Importance
    weighed: Importance
    moved: Movement
    is_sure: bool = False
    has_settled: bool = False
    log_densities: Float[np.ndarray, " k"] | None = None

    @property
    def states(self) -> Draws:
        """States of the chains that the draws are compared with."""
        return self.moved.pooled if self.has_settled else self.moved.settled

    @functools.cached_property
    def khats(self) -> tuple[float, float]:
        """The k-hat of the plain weights, and that of the wider ones."""
        return pareto_khat(self.plain.log_weights), pareto_khat(self.weighed.log_weights)

    @property
    def is_light(self) -> bool:
        """Whether averages with the wider weights are reliable."""
        return self.khats[1] < khat_threshold(num_weighed(self.draws.shape[1]))

    @functools.cached_property
    def by_weights(self) -> Difference:
        """What the wider weights change."""
        weights = truncated_weights(self.weighed.log_weights)
        return difference(self.draws, self.weighed.draws, weights)

    @functools.cached_property
    def by_chains(self) -> Difference:
        return difference(self.draws, self.states)

    @property
    def unlikely(self) -> float | None:
        """The share of draws that are less likely than 95% of the chains' states: 5% at the truth.

        Not 99%: a few chains that start far outside may still be on their way.
        """
        if self.log_densities is None:
            return None
        usual = np.quantile(self.moved.settled_log_densities, 0.05)
        return float(np.mean(self.log_densities < usual))

    @property
    def noise(self) -> float:
        """The noise of the few chains in one half."""
        return (2 / len(self.moved.settled)) ** 0.5 if self.is_sure else 0.0

    @functools.cached_property
    def axes(self) -> Float[np.ndarray, "d k"]:
        """Principal axes, one per column, in standard deviations. Wrong dependence shows on them.

        One half of the chains gives the axes, and the other half is compared along them. In many
        dimensions these are the first principal axes, and as many random directions.
        """
        states = self.states[::2]
        sd = np.maximum(states.std(axis=0), _TINY)
        if len(sd) > LARGE_DIM:
            return _directions(states / sd) / sd[:, None]
        return np.linalg.eigh(np.atleast_2d(np.corrcoef(states, rowvar=False)))[1] / sd[:, None]

    @property
    def others(self) -> Draws:
        """The states of the half that did not give the axes."""
        return self.states[1::2]

    @property
    def is_close(self) -> bool:
        """Whether weights and chains change the draws by hardly more than noise."""
        is_heavy = self.khats[0] >= khat_threshold(num_weighed(self.draws.shape[1]))
        return self.is_sure or (
            self.by_chains.is_tiny(len(self.moved.settled))
            and (is_heavy or is_unchanged(self.plain))
        )


def measure(
    rng: np.random.Generator,
    evaluate: Evaluator,
    posterior: Posterior,
    moved: Movement | None = None,
) -> Measured:
    """Weighs draws, and runs chains from them if there are none that have settled.

    Draws that run to infinity raise ValueError.
    """
    draws = other_draws(rng, posterior)
    plain = weigh(rng, evaluate, posterior, 1.0)
    weighed = weigh(rng, evaluate, posterior, WIDENING)
    if moved is not None:
        return Measured(draws, plain, weighed, moved, has_settled=True)
    is_sure = is_reliable(plain) and is_reliable(weighed, 0.0) and is_unchanged(plain)
    if is_sure:  # a few short chains show whether they lead somewhere else
        num_chains = max(_FEW_CHAINS, _CHAINS_PER_DIM * evaluate.dim)
        before = posterior.host_draws(rng, num_chains)
        moved = chains(rng, evaluate, before, _FEW_TRANSITIONS)
    else:
        moved = _moved(rng, evaluate, posterior, draws)
    return Measured(
        draws, plain, weighed, moved, is_sure, log_densities=some_log_densities(evaluate, draws)
    )


def some_log_densities(evaluate: Evaluator, draws: Draws) -> Float[np.ndarray, " k"] | None:
    """log p of some of the draws. In many dimensions nobody vouches for the joint shape."""
    return evaluate.log_density(draws[:_NUM_LIKELY]) if evaluate.dim <= LARGE_DIM else None


def batch_of_chains(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior
) -> Movement:
    num_chains = max(_num_moved(evaluate.dim) // _BATCHES, _CHAINS_PER_DIM * evaluate.dim)
    return chains(rng, evaluate, posterior.host_draws(rng, num_chains))


def other_draws(rng: np.random.Generator, posterior: Posterior) -> Draws:
    """As many draws as are measured."""
    most = max(_MOST_NUMBERS // posterior.dim, _NUM_DRAWS // 10)
    return posterior.host_draws(rng, min(_NUM_DRAWS, most))


def _directions(states: Draws) -> Float[np.ndarray, "d k"]:
    """The first principal axes of standardised states, and as many random directions."""
    first = leading_axes(states, _NUM_AXES)
    others = np.random.default_rng(0).standard_normal((states.shape[1], _NUM_AXES))
    return np.concatenate([first, others], axis=1)


def _moved(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, draws: Draws
) -> Movement:
    """Chains from draws, which go on where they are slow, or while the tails are undecided."""
    moved = batch_of_chains(rng, evaluate, posterior)
    while len(moved.settled) < _num_moved(evaluate.dim):
        moved = moved.with_more(batch_of_chains(rng, evaluate, posterior))
    is_mixture = posterior.on_host() is not None
    if is_mixture and not difference(draws, moved.settled).is_tiny(len(moved.settled)):
        return moved  # it will be fitted again
    return settled_chains(rng, evaluate, draws, moved, is_mixture)


def settled_chains(
    rng: np.random.Generator,
    evaluate: Evaluator,
    draws: Draws,
    moved: Movement,
    must_be_close: bool = False,
) -> Movement:
    """The chains, which go on where they are slow, or while the tails of the draws are undecided."""
    if moved.lag > _QUICK_LAG:
        num_transitions = min(_LONGER * moved.lag, _MOST_TRANSITIONS)
        moved = moved.continued(chains(rng, evaluate, moved.after, num_transitions))
    for _ in range(_MORE_RUNS):
        num_counted = len(moved.settled) if must_be_close else None
        if not difference(draws, moved.settled).is_undecided(num_counted):
            break
        moved = moved.continued(chains(rng, evaluate, moved.after), keep=True)
    return moved


def _num_moved(dim: int) -> int:
    """The number of states of HMC chains that the draws are compared with.

    Tails are averaged over coordinates, so few coordinates need more.
    """
    return int(np.clip(8_000 // dim, 1_000, 4_000))


def weigh(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, widening: float
) -> Importance:
    number = num_weighed(posterior.dim)
    return weighted(rng, evaluate, posterior, number, NUM_MIXING, widening)


def num_weighed(dim: int) -> int:
    """The number of weighted draws."""
    return _NUM_WEIGHED if dim <= LARGE_DIM else _FEW_WEIGHED


def share(weighed: Importance) -> float:
    """The effective share of the weights."""
    return weighed.effective_sample_size / len(weighed.log_weights)


def is_reliable(weighed: Importance, least_share: float = _SURE_SHARE) -> bool:
    """Whether the weights can show alone that the draws are good."""
    return pareto_khat(weighed.log_weights) < _SURE_KHAT and share(weighed) > least_share


def is_unchanged(plain: Importance) -> bool:
    """Whether the weights change their own draws by hardly more than noise."""
    return plain.difference.is_tiny(1 / max(plain.difference_error, _TINY) ** 2)


def with_weighed_shares(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, modes: Modes | None
) -> Posterior:
    r"""The same sampler with the shares w_k of its modes multiplied by their mean weights.

        w_k′ ∝ w_k · (share of the weights in mode k) / (share of the draws in mode k)

    If the weights have heavy tails, the shares stay as they are.
    """
    family = posterior.family
    mixing = family.mixing if isinstance(family, SemiImplicit) else None
    if modes is None or not isinstance(mixing, ModeMixing):
        return posterior
    try:
        found = weigh(rng, evaluate, posterior, WIDENING)
    except ValueError:  # NaN or zero everywhere: the checks report it
        return posterior
    if pareto_khat(found.log_weights) >= _MAX_KHAT:
        return posterior
    before = modes.shares_of(found.draws)
    after = modes.shares_of(found.draws, truncated_weights(found.log_weights))
    factors = np.where(before > 0, after / np.maximum(before, 1e-30), 1.0)
    shares = np.maximum(np.asarray(mixing.shares, np.float64) * factors, _SMALLEST)
    new = ModeMixing(mixing.base, jnp.asarray(shares, mixing.shares.dtype))
    return dataclasses.replace(posterior, family=eqx.tree_at(lambda f: f.mixing, family, new))
