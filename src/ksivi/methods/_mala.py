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
    choose,
    mean_acceptance,
    strong,
)
from ._method import Verdict, require_values, state_records


class Chain(NamedTuple):
    """BlackJAX's state of one chain, and the adaptation of its step size."""

    mala: PyTree
    step_size: PyTree


class MALA(AbstractChains):
    r"""Proposes x + (ε/2) s_p(x) + √ε ξ and accepts it by the Metropolis test.

    In the warm-up each chain adapts its step size to the target acceptance by dual averaging, so that one that starts
    where the target is steep gets away from there; then it stays.

    **Arguments:**

    - `step_size`: ε, or where its adaptation starts.
    - `num_chains`: run side by side.
    - `num_warmup`: steps before the draws.
    - `num_draws`, `thin`: draws of each chain, and steps between them.
    - `target_acceptance`: what the warm-up adapts the step size to; None keeps it as given.
    - `start`: where the chains start, (num_chains, dim); N(0, I) unless given.

    ```python
    fit = ksivi.run(jax.random.key(0), target, ksivi.MALA(num_chains=100, num_warmup=500, num_draws=100, thin=1))
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

        return jax.tree.map(strong, jax.vmap(chain)(x))

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
        """BlackJAX's init, update and final; with a fixed step size nothing uses the target."""
        target = 0.5 if self.target_acceptance is None else self.target_acceptance
        return blackjax("adaptation.step_size").dual_averaging_adaptation(target)

    def _move(self, key: Array, chain: Chain, target: Target, step: Array) -> tuple[Chain, Scalar]:
        """One transition of one chain, and in the warm-up its adaptation."""
        _, update, final = self._adaptation()
        warming = step < self.num_warmup
        step_size = self.step_size.astype(chain.mala.position.dtype)
        if self.target_acceptance is not None and self.num_warmup:
            step_size = jnp.where(warming, jnp.exp(chain.step_size.log_step_size), final(chain.step_size))
        kernel = blackjax("mcmc.mala").build_kernel()
        # BlackJAX moves by ε s + √(2ε) ξ.
        mala, info = kernel(key, chain.mala, lambda x: target.surrogate(x)[0], 0.5 * step_size)
        adapted = update(chain.step_size, info.acceptance_rate)
        return Chain(mala, choose(warming, adapted, chain.step_size)), info.acceptance_rate
