"""AISIVI: the path gradient of KL(q‖p), with ∇ log q(x) by importance sampling of z given x."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from .._core.checks import as_count, as_widths
from .._core.closures import Optimizer, as_optimizer
from .._core.numerics import log_mean_exp
from ..families import Noise, SemiImplicit
from ._learner import Learner
from ._objective import (
    AbstractObjective,
    auxiliary,
    held,
    noise_of_batches,
    require_joint_density,
)
from ._real_nvp import RealNVP
from ._schedules import Schedule, anneal, as_schedule


class AISIVIDraws(NamedTuple):
    """The randomness of one step: mixing variables and noise of the samples of x, the normals of
    the proposal for each x, joint draws for the proposal's updates, and data rows."""

    z: Float[Array, "n k"]
    xi: Float[Array, "n d"]
    proposed: Float[Array, "n m k"]
    joint: tuple[Float[Array, "r n k"], Float[Array, "r n d"]]
    rows: Int[Array, " b"] | None


class AISIVI(AbstractObjective):
    r"""Minimises KL(q‖p) along x = μ(z) + σ ξ, with log q(x) estimated by importance sampling.

        log q(x) ≈ log 1/K Σₖ q(zₖ) q(x|zₖ) / τ(zₖ|x),   zₖ ~ τ(·|x)

    The gradient of E[log q(x) − log p(x)] flows through the x of q(x|zₖ) only: it is the path
    gradient, with ∇ log q(x) estimated by that of the sum. The proposal τ is a conditional RealNVP.
    Each step first fits it to new draws (z, x) of the family by a step on −E log τ(z|x). It starts
    as N(0, I). The bias vanishes as K grows or as τ approaches q(z|x).

    **Arguments:**

    - `num_samples`: the number of samples of x per step, and of (z, x) per update of τ.
    - `num_mixing`: K.
    - `proposal_layers`, `proposal_hidden`: the number of coupling layers of τ, and the hidden widths
        of the network of each.
    - `proposal_optimizer`: any Optax transformation. Default: Adam with learning rate 1e-3.
    - `proposal_steps`: the number of updates of τ per step.
    - `warm_up`: the number of first steps in which only τ is trained.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.objectives.AISIVI(num_samples=100, num_mixing=64)
    ```

    Reference: Pielok, Bischl and Rügamer, Revisiting Unbiased Implicit Variational Inference,
    ICML 2025.
    """

    warm_up: Array
    annealing: Schedule | None
    num_samples: int = eqx.field(static=True)
    num_mixing: int = eqx.field(static=True)
    proposal_layers: int = eqx.field(static=True)
    proposal_hidden: tuple[int, ...] = eqx.field(static=True)
    proposal_optimizer: Optimizer = eqx.field(static=True)
    proposal_steps: int = eqx.field(static=True)

    def __init__(
        self,
        num_samples: int = 100,
        num_mixing: int = 64,
        proposal_layers: int = 4,
        proposal_hidden: tuple[int, ...] = (32, 32),
        *,
        proposal_optimizer: optax.GradientTransformation | None = None,
        proposal_steps: int = 1,
        warm_up: int = 0,
        annealing: Schedule | None = None,
    ):
        self.num_samples = as_count(num_samples, "num_samples")
        self.num_mixing = as_count(num_mixing, "num_mixing")
        self.proposal_layers = as_count(proposal_layers, "proposal_layers")
        self.proposal_hidden = as_widths(proposal_hidden, "proposal_hidden")
        self.proposal_optimizer = as_optimizer(
            proposal_optimizer, "proposal_optimizer", optax.adam(1e-3)
        )
        self.proposal_steps = as_count(proposal_steps, "proposal_steps")
        self.warm_up = jnp.asarray(as_count(warm_up, "warm_up", minimum=0), jnp.int32)
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def init(self, key, target, family) -> Learner:
        require_joint_density(family, "AISIVI", "it weighs proposals of z given x")
        layers, hidden = self.proposal_layers, self.proposal_hidden
        flow = RealNVP(key, family.mixing_dim, family.dim, layers, hidden)
        return Learner.of(flow, self.proposal_optimizer, family.dtype)

    def draw(self, key, target, family) -> AISIVIDraws:
        noise_key, proposed_key, joint_key, rows_key = jax.random.split(key, 4)
        z, xi = family.noise(noise_key, self.num_samples)
        shape = (self.num_samples, self.num_mixing, z.shape[1])
        proposed = family.normal(proposed_key, shape, family.dtype)
        joint = noise_of_batches(joint_key, family, self.proposal_steps, self.num_samples)
        return AISIVIDraws(z, xi, proposed, joint, target.draw_rows(rows_key))

    def prepare(self, state, draws, target, family, step):
        """Updates the proposal, once for each batch of joint draws."""

        def update(learner: Learner, noise: Noise) -> tuple[Learner, None]:
            x, _ = family.transport(noise)
            loss = lambda flow: -jnp.mean(jax.vmap(flow.log_prob)(noise[0], x))  # noqa: E731
            return learner.descended(loss, self.proposal_optimizer), None

        return lax.scan(update, state, draws.joint)[0]

    def loss(self, family, state, draws, target, step):
        target, heat = anneal(target.on_rows(draws.rows), self.annealing, step)
        x, _ = family.transport((draws.z, draws.xi))
        log_weights = jax.vmap(_log_weights, (None, None, 0, 0))(
            held(family), state.network, x, draws.proposed
        )
        log_p, score = jax.vmap(target.surrogate)(x)
        value = jnp.mean(log_mean_exp(log_weights) - log_p)
        value = jnp.where(step < self.warm_up, lax.stop_gradient(value), value)
        return value, auxiliary(x, score, x, heat) | {
            "proposal_efficiency": _efficiency(log_weights)
        }

    @property
    def score_evals(self) -> int:
        return self.num_samples


def _log_weights(
    family: SemiImplicit, flow: RealNVP, x: Float[Array, " d"], u: Float[Array, "m k"]
) -> Float[Array, " m"]:
    """log q(zₖ) q(x|zₖ) / τ(zₖ|x) for zₖ ~ τ(·|x). Only x in q(x|zₖ) is not held constant."""
    z, log_tau = jax.vmap(flow.sample_and_log_prob, (0, None))(u, lax.stop_gradient(x))
    log_joint = lambda z: family.conditional.log_prob(x, z) + family.mixing.log_prob(z)  # noqa: E731
    return jax.vmap(log_joint)(z) - log_tau


def _efficiency(log_weights: Float[Array, "n m"]) -> Scalar:
    """The effective share of the K proposals, a mean over x. It is 1 if τ(z|x) is q(z|x)."""
    weights = jax.nn.softmax(lax.stop_gradient(log_weights), axis=1)
    return jnp.mean(1 / jnp.sum(weights**2, axis=1)) / weights.shape[1]
