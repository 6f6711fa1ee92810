"""SGLD: stochastic gradient Langevin dynamics."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._core.checks import as_positive
from ._chains import AbstractChains, Points, agreement, as_chains, blackjax, chain_status
from ._method import Verdict, state_records


class SGLD(AbstractChains):
    r"""Moves by x ← x + (ε/2) s_p(x) + √ε ξ, without a Metropolis test.

    Its draws are biased by the step size and by minibatches. With data minibatches, each chain
    draws one at every step. It needs only a score. A fit is never trusted: R-hat shows whether the
    chains agree, not whether all of them are biased.

    **Arguments:**

    - `step_size`: ε.
    - `num_chains`: number of chains.
    - `num_warmup`: number of steps before the draws.
    - `num_draws`, `thin`: number of draws per chain, and of steps per draw.
    - `clip`: clips every coordinate to ± this value, as the authors do on the diffusion.
    - `start`: start of the chains, shape (num_chains, dim). Default: draws of N(0, I).

    ```python
    fit = ksivi.run(jax.random.key(0), target, ksivi.SGLD(step_size=0.01, num_chains=100))
    ```

    Reference: Welling and Teh, Bayesian Learning via Stochastic Gradient Langevin Dynamics, ICML
    2011.
    """

    step_size: Array
    clip: Array | None
    start: Array | None
    num_chains: int = eqx.field(static=True)
    num_warmup: int = eqx.field(static=True)
    num_draws: int = eqx.field(static=True)
    thin: int = eqx.field(static=True)

    def __init__(
        self,
        step_size: float | Array = 0.05,
        num_chains: int = 200,
        num_warmup: int = 2_000,
        num_draws: int = 100,
        *,
        thin: int = 200,
        clip: float | Array | None = None,
        start: Points | None = None,
    ):
        self.step_size = as_positive(step_size, "step_size")
        self.clip = None if clip is None else as_positive(clip, "clip")
        chains = as_chains(start, num_chains, num_warmup, num_draws, thin)
        self.start, self.num_chains, self.num_warmup, self.num_draws, self.thin = chains

    def init(self, x, target):
        return x

    def step(self, key, state, target, step):
        drift = blackjax("sgmcmc.diffusions").overdamped_langevin()
        # BlackJAX moves by ε s + √(2ε) ξ.
        half = 0.5 * self.step_size.astype(state.dtype)

        def move(key: Array, x: Array) -> tuple[Array, Array, Array]:
            rows_key, noise_key = jax.random.split(key)
            value, score = target.minibatch(rows_key).surrogate(x)
            return drift(noise_key, x, score, half), value, score

        new, value, score = jax.vmap(move)(jax.random.split(key, len(state)), state)
        new = new if self.clip is None else jnp.clip(new, -self.clip, self.clip)
        return new, state_records(state, score, -jnp.mean(value), len(state))

    def positions(self, state):
        return state

    def verdict(self, kept, history):
        found = agreement(kept)
        status, agreed = chain_status(found)
        return Verdict(None if agreed or found.r_hat is None else status, False, found)
