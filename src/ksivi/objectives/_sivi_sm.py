"""SIVI-SM: score matching with a critic."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from .._core.checks import as_count, as_widths
from .._core.closures import Optimizer, as_optimizer
from ..families import MLP, SemiImplicit
from ..targets import Target
from ._learner import Learner
from ._objective import AbstractObjective, Aux, auxiliary, noise_of_batches
from ._schedules import Schedule, anneal, as_schedule


class SIVISMDraws(NamedTuple):
    """The randomness of one step, for the critic's batches and then the family's batch.

    Mixing variables, noise and data rows.
    """

    z: Float[Array, "r n k"]
    xi: Float[Array, "r n d"]
    rows: Int[Array, "r b"] | None


class SIVISM(AbstractObjective):
    r"""min_φ max_ψ E[gᵀ(2 s_p(x) + 2 ξ/σ − g)] with g = f_ψ(x) + c_t s_p(x).

    The best g is s_p − s_q, and the value there is the Fisher divergence. Each step updates ψ on
    new samples, `critic_steps` times, and then φ.

    **Arguments:**

    - `num_samples`: the number of samples of x for each update.
    - `critic_hidden`: the hidden widths of f_ψ: ℝᵈ → ℝᵈ.
    - `critic_optimizer`: any Optax transformation. Default: Adam with learning rate 2e-3.
    - `critic_steps`: the number of updates of ψ per step.
    - `warm_up`: the number of first steps in which only ψ is trained.
    - `score_weight`: step ↦ c_t, such as `Decay`. Default: no such term.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.SIVISM(num_samples=100, critic_hidden=(128, 128), warm_up=100)
    ```

    Reference: Yu and Zhang, Semi-Implicit Variational Inference via Score Matching, ICLR 2023.
    """

    warm_up: Array
    score_weight: Schedule | None
    annealing: Schedule | None
    num_samples: int = eqx.field(static=True)
    critic_hidden: tuple[int, ...] = eqx.field(static=True)
    critic_optimizer: Optimizer = eqx.field(static=True)
    critic_steps: int = eqx.field(static=True)

    def __init__(
        self,
        num_samples: int = 100,
        critic_hidden: tuple[int, ...] = (128, 128),
        *,
        critic_optimizer: optax.GradientTransformation | None = None,
        critic_steps: int = 1,
        warm_up: int = 0,
        score_weight: Schedule | None = None,
        annealing: Schedule | None = None,
    ):
        self.num_samples = as_count(num_samples, "num_samples")
        self.critic_hidden = as_widths(critic_hidden, "critic_hidden")
        self.critic_optimizer = as_optimizer(critic_optimizer, "critic_optimizer", optax.adam(2e-3))
        self.critic_steps = as_count(critic_steps, "critic_steps")
        self.warm_up = jnp.asarray(as_count(warm_up, "warm_up", minimum=0), jnp.int32)
        self.score_weight = as_schedule(score_weight, "score_weight", "Decay(factor=0.99)")
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def init(self, key, target, family) -> Learner:
        critic = MLP(key, (family.dim, *self.critic_hidden, family.dim))
        return Learner.of(critic, self.critic_optimizer, family.dtype)

    def draw(self, key, target, family) -> SIVISMDraws:
        noise_key, rows_key = jax.random.split(key)
        batches = self.critic_steps + 1
        z, xi = noise_of_batches(noise_key, family, batches, self.num_samples)
        rows = target.draw_rows(jax.random.split(rows_key, batches))
        return SIVISMDraws(z, xi, rows)

    def prepare(self, state, draws, target, family, step):
        """Updates the critic, once for each of its batches."""

        def update(critic: Learner, batch: SIVISMDraws) -> tuple[Learner, None]:
            negative = lambda network: -self._objective(family, network, batch, target, step)[0]  # noqa: E731
            return critic.descended(negative, self.critic_optimizer), None

        return lax.scan(update, state, jax.tree.map(lambda a: a[:-1], draws))[0]

    def loss(self, family, state, draws, target, step):
        value, aux = self._objective(
            family, state.network, jax.tree.map(lambda a: a[-1], draws), target, step
        )
        return jnp.where(step < self.warm_up, lax.stop_gradient(value), value), aux

    @property
    def score_evals(self) -> int:
        return (self.critic_steps + 1) * self.num_samples

    @property
    def num_minibatches(self) -> int:
        return self.critic_steps + 1

    def _objective(
        self,
        family: SemiImplicit,
        network: MLP,
        batch: SIVISMDraws,
        target: Target,
        step: Int[Array, ""],
    ) -> tuple[Scalar, Aux]:
        """E[gᵀ(2 s_p + 2 ξ/σ − g)] on one batch."""
        target, heat = anneal(target.on_rows(batch.rows), self.annealing, step)
        x, conditional_score = family.transport((batch.z, batch.xi))
        score = jax.vmap(target.score)(x)
        g = jax.vmap(network)(x)
        if self.score_weight is not None:
            g = g + self.score_weight(step).astype(g.dtype) * score
        value = jnp.mean(jnp.sum(g * (2 * (score - conditional_score) - g), axis=1))
        return value, auxiliary(x, score, x, heat)
