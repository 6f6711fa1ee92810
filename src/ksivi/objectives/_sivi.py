"""SIVI: minimises a surrogate of the negative evidence lower bound."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.checks import as_count
from ._objective import AbstractObjective, auxiliary
from ._schedules import Schedule, anneal, as_schedule


class SIVIDraws(NamedTuple):
    """The randomness of one step: mixing variables, noise, auxiliary z, data rows."""

    z: Float[Array, "n k"]
    xi: Float[Array, "n d"]
    others: Float[Array, "m k"]
    rows: Int[Array, " b"] | None


class SIVI(AbstractObjective):
    r"""Minimises E[log 1/(K+1) Σₖ q(x|zₖ) − log p(x)], where z₀ is the z that made x.

    This is an upper bound of KL(q‖p) − log ∫p, and falls to it as K grows. If the target has
    values, the loss is the bound. Otherwise log p(x) is replaced by ⟨s_p(x), x⟩ with s_p held
    constant, which has the same gradient.

    **Arguments:**

    - `num_samples`: N, the number of samples of x per step.
    - `num_mixing`: K, the number of auxiliary z. The samples of a step share them. This does not
        change the expectation, and the network is evaluated N + K times instead of N (K + 1) times.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.SIVI(num_samples=100, num_mixing=100)
    ```

    Reference: Yin and Zhou, Semi-Implicit Variational Inference, ICML 2018.
    """

    annealing: Schedule | None
    num_samples: int = eqx.field(static=True)
    num_mixing: int = eqx.field(static=True)

    def __init__(
        self, num_samples: int = 100, num_mixing: int = 100, *, annealing: Schedule | None = None
    ):
        self.num_samples = as_count(num_samples, "num_samples")
        self.num_mixing = as_count(num_mixing, "num_mixing", minimum=0)
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def init(self, key, target, family) -> None:
        return None

    def draw(self, key, target, family) -> SIVIDraws:
        noise_key, mixing_key, rows_key = jax.random.split(key, 3)
        z, xi = family.noise(noise_key, self.num_samples)
        others = family.mixing.sample(mixing_key, self.num_mixing, family.dtype)
        return SIVIDraws(z, xi, others, target.draw_rows(rows_key))

    def loss(self, family, state, draws, target, step):
        target, heat = anneal(target.on_rows(draws.rows), self.annealing, step)
        x, log_q = family.transport_and_log_prob((draws.z, draws.xi), draws.others)
        log_p, score = jax.vmap(target.surrogate)(x)
        return jnp.mean(log_q - log_p), auxiliary(x, score, x, heat)

    @property
    def score_evals(self) -> int:
        return self.num_samples
