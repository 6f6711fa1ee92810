"""The denoised score: a network learns ∇ log q, and the family follows it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from .._core.checks import as_count, as_widths
from .._core.closures import Optimizer, as_optimizer
from ..families import MLP
from ._learner import Learner
from ._objective import AbstractObjective, auxiliary, noise_of_batches, path_loss
from ._schedules import Schedule, anneal, as_schedule


class DenoisedScoreDraws(NamedTuple):
    """The randomness of one step.

    Mixing variables and noise of the family's batch, of the network's batches, and data rows.
    """

    z: Float[Array, "n k"]
    xi: Float[Array, "n d"]
    network_z: Float[Array, "r m k"]
    network_xi: Float[Array, "r m d"]
    rows: Int[Array, " b"] | None


class DenoisedScore(AbstractObjective):
    r"""Minimises KL(q‖p) along ψ(x) − s_p(x), where the network ψ learns ∇ log q by regression.

        min_ψ E‖ψ(x) − ∇ₓ log q(x|z)‖²,   then   min_φ E⟨ψ(x) − s_p(x), x⟩,

    with the force ψ − s_p held constant in the second. The conditional score −ξ/σ(z) is ∇ log q(x)
    plus noise of mean 0 given x, so the best ψ is ∇ log q, as in denoising. The mean of the loss is
    0 at q = p, and it is not a bound.

    **Arguments:**

    - `num_samples`: the number of samples of x for the update of the family.
    - `network_hidden`: the hidden widths of ψ: ℝᵈ → ℝᵈ.
    - `network_optimizer`: any Optax transformation. Default: Adam with learning rate 1e-3.
    - `network_steps`: the number of updates of ψ per step. ψ continues from the previous step.
    - `network_samples`: the number of samples of x for each update of ψ.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.objectives.DenoisedScore(num_samples=100, network_steps=5)
    ```
    """

    annealing: Schedule | None
    num_samples: int = eqx.field(static=True)
    network_hidden: tuple[int, ...] = eqx.field(static=True)
    network_optimizer: Optimizer = eqx.field(static=True)
    network_steps: int = eqx.field(static=True)
    network_samples: int = eqx.field(static=True)

    def __init__(
        self,
        num_samples: int = 100,
        network_hidden: tuple[int, ...] = (128, 128),
        *,
        network_optimizer: optax.GradientTransformation | None = None,
        network_steps: int = 5,
        network_samples: int = 2_048,
        annealing: Schedule | None = None,
    ):
        self.num_samples = as_count(num_samples, "num_samples")
        self.network_hidden = as_widths(network_hidden, "network_hidden")
        self.network_optimizer = as_optimizer(
            network_optimizer, "network_optimizer", optax.adam(1e-3)
        )
        self.network_steps = as_count(network_steps, "network_steps")
        self.network_samples = as_count(network_samples, "network_samples")
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def init(self, key, target, family) -> Learner:
        network = MLP(key, (family.dim, *self.network_hidden, family.dim))
        return Learner.of(network, self.network_optimizer, family.dtype)

    def draw(self, key, target, family) -> DenoisedScoreDraws:
        noise_key, network_key, rows_key = jax.random.split(key, 3)
        z, xi = family.noise(noise_key, self.num_samples)
        batches = noise_of_batches(network_key, family, self.network_steps, self.network_samples)
        return DenoisedScoreDraws(z, xi, *batches, target.draw_rows(rows_key))

    def prepare(self, state, draws, target, family, step):
        """Updates ψ, once for each of its batches."""

        def update(learner: Learner, noise: tuple[Array, Array]) -> tuple[Learner, None]:
            x, conditional_score = family.transport(noise)

            def error(network: MLP) -> Array:
                return jnp.mean(jnp.sum((jax.vmap(network)(x) - conditional_score) ** 2, axis=1))

            return learner.descended(error, self.network_optimizer), None

        return lax.scan(update, state, (draws.network_z, draws.network_xi))[0]

    def loss(self, family, state, draws, target, step):
        target, heat = anneal(target.on_rows(draws.rows), self.annealing, step)
        x, _ = family.transport((draws.z, draws.xi))
        at = lax.stop_gradient(x)
        score = jax.vmap(target.score)(at)
        force = jax.vmap(state.network)(at) - score
        return path_loss(force, x), auxiliary(at, score, at, heat)

    @property
    def score_evals(self) -> int:
        return self.num_samples
