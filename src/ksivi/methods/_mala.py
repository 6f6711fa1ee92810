"""MALA: the Metropolis-adjusted Langevin algorithm."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Scalar

from .._core.checks import as_positive
from ..targets import Target
from ._chains import (
    AbstractChains,
    Points,
    agreement,
    as_acceptance,
    as_chains,
    blackjax,
    chain_status,
    mean_acceptance,
    select_state,
    without_weak_type,
)
from ._method import Verdict, require_values, state_records


class Chain(NamedTuple):
    """The BlackJAX state of one chain, and of its step size adaptation."""

    mala: PyTree
    step_size: PyTree


class MALA(AbstractChains):
    r"""Proposes x + (ε/2) s_p(x) + √ε ξ, with a Metropolis test.

    In the warm-up, each chain adapts its step size to the target acceptance rate by dual averaging.
    So a chain that starts where the target is steep can leave that place. After the warm-up, the
    step size is fixed.

    **Arguments:**

    - `step_size`: ε, or its start value if it is adapted.
    - `num_chains`: number of chains.
    - `num_warmup`: number of steps before the draws.
    - `num_draws`, `thin`: number of draws per chain, and of steps per draw.
    - `target_acceptance`: the acceptance rate that the warm-up aims at. None keeps the step size
        fixed.
    - `start`: start of the chains, shape (num_chains, dim). Default: draws of N(0, I).

    ```python
    method = ksivi.MALA(num_chains=100, num_warmup=500, num_draws=100, thin=1)
    fit = ksivi.run(jax.random.key(0), target, method)
    ```

    Reference: Roberts and Tweedie, Exponential convergence of Langevin distributions, 1996.
    """

    step_size: Array
    target_acceptance: Array | None
    start: Array | None
    num_chains: int = eqx.field(static=True)
    num_warmup: int = eqx.field(static=True)
    num_draws: int = eqx.field(static=True)
    thin: int = eqx.field(static=True)

    def __init__(
        self,
        step_size: float | Array = 0.1,
        num_chains: int = 1_000,
        num_warmup: int = 2_000,
        num_draws: int = 20,
        *,
        thin: int = 50,
        target_acceptance: float | Array | None = 0.574,
        start: Points | None = None,
    ):
        self.step_size = as_positive(step_size, "step_size")
        self.target_acceptance = as_acceptance(target_acceptance)
        chains = as_chains(start, num_chains, num_warmup, num_draws, thin)
        self.start, self.num_chains, self.num_warmup, self.num_draws, self.thin = chains

    def init(self, x, target) -> Chain:
        require_values(target, "MALA")

        def chain(x: Array) -> Chain:
            state = blackjax("mcmc.mala").init(x, lambda x: target.surrogate(x)[0])
            return Chain(state, self._adaptation()[0](self.step_size.astype(x.dtype)))

        return jax.tree.map(without_weak_type, jax.vmap(chain)(x))

    def step(self, key, state, target, step):
        move = jax.vmap(lambda key, chain: self._move(key, chain, target, step))
        chains, acceptance = move(jax.random.split(key, self.num_chains), state)
        position, log_density, score = state.mala
        records = state_records(position, score, -jnp.mean(log_density), self.num_chains)
        return chains, {**records, "acceptance": jnp.mean(acceptance)}

    def positions(self, state):
        return state.mala.position

    def verdict(self, kept, history):
        acceptance = mean_acceptance(history, self.num_warmup)
        found = dataclasses.replace(agreement(kept), acceptance=acceptance)
        return Verdict(*chain_status(found), found)

    def _adaptation(self) -> tuple:
        """BlackJAX's init, update and final. A fixed step size does not use the target."""
        target = 0.5 if self.target_acceptance is None else self.target_acceptance
        return blackjax("adaptation.step_size").dual_averaging_adaptation(target)

    def _move(self, key: Array, chain: Chain, target: Target, step: Array) -> tuple[Chain, Scalar]:
        """One transition of one chain, with its adaptation in the warm-up."""
        _, update, final = self._adaptation()
        warming = step < self.num_warmup
        step_size = self.step_size.astype(chain.mala.position.dtype)
        if self.target_acceptance is not None and self.num_warmup:
            step_size = jnp.where(
                warming, jnp.exp(chain.step_size.log_step_size), final(chain.step_size)
            )
        kernel = blackjax("mcmc.mala").build_kernel()
        # BlackJAX moves by ε s + √(2ε) ξ.
        mala, info = kernel(key, chain.mala, lambda x: target.surrogate(x)[0], 0.5 * step_size)
        adapted = update(chain.step_size, info.acceptance_rate)
        return Chain(mala, select_state(warming, adapted, chain.step_size)), info.acceptance_rate
