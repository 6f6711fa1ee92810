"""KPG-IS: the kernelized path gradient, with importance sampling of the second batch."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from .._core.checks import as_count, as_fraction, as_widths
from .._core.closures import Optimizer, as_optimizer
from ..families import MLP, SemiImplicit
from ..kernels import AbstractKernel, Gaussian, as_kernel
from ..targets import Target
from ._learner import Learner
from ._objective import AbstractObjective, auxiliary, path_loss, require_mixing_density
from ._proposal import Proposal, ProposalNoise, draw_proposals
from ._schedules import Schedule, anneal, as_schedule


class KPGISDraws(NamedTuple):
    """The randomness of one step.

    Mixing variables and noise of the samples, the same of their proposals, and data rows.
    """

    z: Float[Array, "n k"]
    xi: Float[Array, "n d"]
    proposals: ProposalNoise
    proposed_xi: Float[Array, "n l d"]
    rows: Int[Array, " b"] | None


class KPGIS(AbstractObjective):
    r"""Minimises KL(q‖p) along the smoothed force of `KPG`, with points near each x.

    The kernel ignores most draws of q. Here the force at each x is estimated with its own l draws,

        f(xᵢ) = 1/l Σⱼ wᵢⱼ k(xᵢ, x′ᵢⱼ) [−ξ′ᵢⱼ/σ(z′ᵢⱼ) − s_p(x′ᵢⱼ)],   wᵢⱼ = q(z′ᵢⱼ) / τ(z′ᵢⱼ|xᵢ),

    where z′ᵢⱼ ~ τ(z|xᵢ) and x′ᵢⱼ = μ(z′ᵢⱼ) + σ(z′ᵢⱼ) ξ′ᵢⱼ, and the loss is E⟨f(x), x⟩ with f held
    constant. With less noise the kernel can be narrower. The proposal has a network,

        τ(z|x) = α(x) q(z) + (1 − α(x)) N(z; m(x), diag s²(x)),   α_min < α(x) < 1,

    so no weight is above 1/α_min. Each step first fits it to its own pairs, by −log τ(zᵢ|xᵢ). This
    is no bias: for any τ the mean of f is that of `KPG`, for a fixed bandwidth. The median bandwidth
    is that of the pairs of x.

    **Arguments:**

    - `num_samples`: the number of samples of x per step.
    - `num_proposals`: l. A step evaluates the target's score at x and at all proposals.
    - `kernel`: the kernel k. Default: Gaussian with the median bandwidth.
    - `min_share`: α_min, between 0 and 1.
    - `proposal_hidden`: the hidden widths of the network x ↦ (m, log s², logit of α).
    - `proposal_optimizer`: any Optax transformation. Default: Adam with learning rate 1e-3.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.objectives.KPGIS(num_samples=100, num_proposals=10)
    ```

    Reference: Pielok, Bischl and Rügamer, Semi-Implicit Variational Inference via Kernelized Path
    Gradient Descent, AISTATS 2026.
    """

    kernel: AbstractKernel
    min_share: Float[Array, ""]
    annealing: Schedule | None
    num_samples: int = eqx.field(static=True)
    num_proposals: int = eqx.field(static=True)
    proposal_hidden: tuple[int, ...] = eqx.field(static=True)
    proposal_optimizer: Optimizer = eqx.field(static=True)

    def __init__(
        self,
        num_samples: int = 100,
        num_proposals: int = 10,
        *,
        kernel: AbstractKernel | None = None,
        min_share: float | Array = 0.1,
        proposal_hidden: tuple[int, ...] = (128, 128),
        proposal_optimizer: optax.GradientTransformation | None = None,
        annealing: Schedule | None = None,
    ):
        self.num_samples = as_count(num_samples, "num_samples", minimum=2)
        self.num_proposals = as_count(num_proposals, "num_proposals")
        self.kernel = as_kernel(kernel, Gaussian())
        self.min_share = as_fraction(min_share, "min_share")
        self.proposal_hidden = as_widths(proposal_hidden, "proposal_hidden")
        self.proposal_optimizer = as_optimizer(
            proposal_optimizer, "proposal_optimizer", optax.adam(1e-3)
        )
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def init(self, key, target, family) -> Learner:
        require_mixing_density(family, "KPGIS", "it weighs proposals of z given x")
        network = MLP(key, (family.dim, *self.proposal_hidden, 2 * family.mixing_dim + 1))
        return Learner.of(network, self.proposal_optimizer, family.dtype)

    def draw(self, key, target, family) -> KPGISDraws:
        noise_key, proposal_key, xi_key, rows_key = jax.random.split(key, 4)
        shape = (self.num_samples, self.num_proposals)
        z, xi = family.noise(noise_key, self.num_samples)
        return KPGISDraws(
            z,
            xi,
            draw_proposals(proposal_key, family, shape),
            family.normal(xi_key, (*shape, family.dim), family.dtype),
            target.draw_rows(rows_key),
        )

    def prepare(self, state, draws, target, family, step):
        """Updates τ, once."""
        x, _ = family.transport((draws.z, draws.xi))

        def loss(network: MLP) -> Array:
            return -jnp.mean(jax.vmap(self._proposal(family, network).log_prob)(draws.z, x))

        return state.descended(loss, self.proposal_optimizer)

    def loss(self, family, state, draws, target, step):
        target, heat = anneal(target.on_rows(draws.rows), self.annealing, step)
        x, _ = family.transport((draws.z, draws.xi))
        at, proposal = lax.stop_gradient(x), self._proposal(family, state.network)
        score = jax.vmap(target.score)(at)
        force = self._force(family, proposal, at, draws, target)
        return path_loss(force, x), auxiliary(at, score, at, heat)

    @property
    def score_evals(self) -> int:
        return self.num_samples * (1 + self.num_proposals)

    def _proposal(self, family: SemiImplicit, network: MLP) -> Proposal:
        return Proposal(family.mixing, network, self.min_share.astype(family.dtype))

    def _force(
        self,
        family: SemiImplicit,
        proposal: Proposal,
        x: Float[Array, "n d"],
        draws: KPGISDraws,
        target: Target,
    ) -> Float[Array, "n d"]:
        """f at every x."""
        z = jax.vmap(proposal.sample)(draws.proposals, x)
        weights = jnp.exp(jax.vmap(jax.vmap(proposal.log_weight, (0, None)))(z, x))
        noise = lax.collapse(z, 0, 2), lax.collapse(draws.proposed_xi, 0, 2)
        others, conditional_score = lax.stop_gradient(family.transport(noise))
        difference = conditional_score - jax.vmap(target.score)(others)
        kernel = self.kernel.resolve(x, x, 1)
        near = jax.vmap(lambda x, others: kernel.gram(x[None], others)[0])
        others, difference = (a.reshape(draws.proposed_xi.shape) for a in (others, difference))
        return jnp.mean((weights * near(x, others))[:, :, None] * difference, axis=1)
