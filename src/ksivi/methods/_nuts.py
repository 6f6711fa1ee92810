"""NUTS: the no-U-turn sampler."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PyTree

from .._core.checks import as_count, as_flag
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
    """The BlackJAX state of one chain, and of its step size and mass matrix adaptation."""

    hmc: PyTree
    step_size: PyTree
    mass: PyTree


class NUTS(AbstractChains):
    r"""Hamiltonian Monte Carlo whose trajectories end where they turn back.

    In the warm-up, each chain adapts its mass matrix in Stan's windows of doubling length, and its
    step size by dual averaging. A fit is trusted if no transition diverged, R-hat is below 1.01,
    and the effective sample size is at least 400.

    **Arguments:**

    - `num_chains`: number of chains.
    - `num_warmup`: number of adaptation steps before the draws.
    - `num_draws`, `thin`: number of draws per chain, and of steps per draw.
    - `target_acceptance`: the acceptance rate that the adaptation aims at. Increase it if
        transitions diverge.
    - `dense_mass`: whether to adapt a full mass matrix instead of a diagonal one.
    - `max_doublings`: a trajectory has at most 2 to the power of this number of steps.
    - `start`: start of the chains, shape (num_chains, dim). Default: draws of N(0, I).

    ```python
    method = ksivi.NUTS(num_chains=4, num_warmup=500, num_draws=500)
    fit = ksivi.run(jax.random.key(0), target, method)
    fit.diagnostics.r_hat, fit.diagnostics.divergences
    ```

    Reference: Hoffman and Gelman, The No-U-Turn Sampler, JMLR 2014.
    """

    target_acceptance: Array
    start: Array | None
    num_chains: int = eqx.field(static=True)
    num_warmup: int = eqx.field(static=True)
    num_draws: int = eqx.field(static=True)
    thin: int = eqx.field(static=True)
    dense_mass: bool = eqx.field(static=True)
    max_doublings: int = eqx.field(static=True)

    def __init__(
        self,
        num_chains: int = 4,
        num_warmup: int = 1_000,
        num_draws: int = 1_000,
        *,
        thin: int = 1,
        target_acceptance: float | Array = 0.8,
        dense_mass: bool = False,
        max_doublings: int = 10,
        start: Points | None = None,
    ):
        acceptance = as_acceptance(target_acceptance)
        if acceptance is None:
            raise ValueError("target_acceptance must be a probability between 0 and 1, got None")
        self.target_acceptance = acceptance
        self.dense_mass = as_flag(dense_mass, "dense_mass")
        self.max_doublings = as_count(max_doublings, "max_doublings")
        as_count(num_warmup, "num_warmup", minimum=20)
        chains = as_chains(start, num_chains, num_warmup, num_draws, thin)
        self.start, self.num_chains, self.num_warmup, self.num_draws, self.thin = chains

    def init(self, x, target) -> Chain:
        require_values(target, "NUTS")
        (start_step, *_), (start_mass, *_) = self._adaptations()

        def chain(x: Array) -> Chain:
            state = blackjax("mcmc.hmc").init(x, lambda x: target.surrogate(x)[0])
            return Chain(state, start_step(jnp.ones((), x.dtype)), start_mass(target.dim))

        return jax.tree.map(without_weak_type, jax.vmap(chain)(x))

    def step(self, key, state, target, step):
        stages = jnp.asarray(
            blackjax("adaptation.staged_adaptation").build_schedule(self.num_warmup), jnp.int32
        )
        stage = stages[jnp.minimum(step, self.num_warmup - 1)]
        keys = jax.random.split(key, self.num_chains)
        move = jax.vmap(lambda key, chain: self._move(key, chain, target, step, stage))
        chains, info = move(keys, state)
        position, log_density, score = state.hmc
        counted = step >= self.num_warmup
        records = {
            **state_records(
                position, score, -jnp.mean(log_density), jnp.sum(info.num_integration_steps)
            ),
            "acceptance": jnp.mean(info.acceptance_rate),
            "divergences": jnp.where(counted, jnp.sum(info.is_divergent), 0),
            "trajectory": jnp.mean(info.num_integration_steps.astype(position.dtype)),
        }
        return chains, records

    def positions(self, state):
        return state.hmc.position

    def verdict(self, kept, history):
        divergences = int(history.get("divergences", np.zeros(0)).sum())
        acceptance = mean_acceptance(history, self.num_warmup)
        found = dataclasses.replace(agreement(kept), divergences=divergences, acceptance=acceptance)
        return Verdict(*chain_status(found), found)

    def _adaptations(self) -> tuple[tuple, tuple]:
        """BlackJAX's functions init, update and final, for step size and mass matrix."""
        step_size = blackjax("adaptation.step_size").dual_averaging_adaptation(
            self.target_acceptance
        )
        mass = blackjax("adaptation.mass_matrix").mass_matrix_adaptation(not self.dense_mass)
        return step_size, mass

    def _move(
        self, key: Array, chain: Chain, target, step: Array, stage: Int[Array, "2"]
    ) -> tuple[Chain, PyTree]:
        """One transition of one chain, with its adaptation in the warm-up."""
        (_, _, final_step), _ = self._adaptations()
        warming = step < self.num_warmup
        step_size = jnp.where(
            warming, jnp.exp(chain.step_size.log_step_size), final_step(chain.step_size)
        )
        kernel = blackjax("mcmc.nuts").build_kernel()
        log_density = lambda x: target.surrogate(x)[0]  # noqa: E731
        hmc, info = kernel(
            key,
            chain.hmc,
            log_density,
            step_size,
            chain.mass.inverse_mass_matrix,
            self.max_doublings,
        )
        adapted = self._adapt(chain, hmc.position, info.acceptance_rate, stage)
        return Chain(hmc, *select_state(warming, adapted, (chain.step_size, chain.mass))), info

    def _adapt(
        self, chain: Chain, x: Array, acceptance: Array, stage: Int[Array, "2"]
    ) -> tuple[PyTree, PyTree]:
        """Stan's schedule: updates the step size at every step, the mass matrix in slow windows."""
        (start_step, update_step, final_step), (_, update_mass, final_mass) = self._adaptations()
        slow, window_ends = stage[0] == 1, stage[1] == 1
        step_size = update_step(chain.step_size, acceptance)
        mass = lax.cond(slow, lambda m: update_mass(m, x), lambda m: m, chain.mass)
        return lax.cond(
            window_ends,
            lambda s, m: jax.tree.map(
                _with_dtype_of, (start_step(final_step(s)), final_mass(m)), (s, m)
            ),
            lambda s, m: (s, m),
            step_size,
            mass,
        )


def _with_dtype_of(new: Array, old: Array) -> Array:
    return jnp.asarray(new, jnp.asarray(old).dtype)
