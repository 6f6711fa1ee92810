"""UIVI: the gradient of the evidence bound, with ∇ log q(x) estimated by chains on q(z|x)."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from .._core.checks import as_count, as_positive
from ..families import SemiImplicit
from ._objective import AbstractObjective, auxiliary, path_loss, require_joint_density
from ._schedules import Schedule, anneal, as_schedule

_TARGET_ACCEPTANCE = 0.9
_ADAPTATION_RATE = 0.01


class UIVIDraws(NamedTuple):
    """The randomness of one step.

    Mixing variables, noise, the momenta and acceptance levels of each transition, and data rows.
    """

    z: Float[Array, "n k"]
    xi: Float[Array, "n d"]
    momenta: Float[Array, "t n k"]
    levels: Float[Array, "t n"]
    rows: Int[Array, " b"] | None


class Chains(NamedTuple):
    """The step size of the chains, kept from step to step, and ∇ log q at this step's samples."""

    step_size: Scalar
    score: Float[Array, "n d"]


class Position(NamedTuple):
    """The position of a chain, with log q(x|z) + log q(z) and its gradient."""

    z: Float[Array, " k"]
    log_density: Scalar
    gradient: Float[Array, " k"]


class UIVI(AbstractObjective):
    r"""Minimises KL(q‖p) along x = μ(z) + σ ξ, with ∇ log q(x) = E_{q(z′|x)}[∇ₓ log q(x|z′)].

    The loss is E⟨∇ log q(x) − s_p(x), x⟩ with both scores held constant, which has the gradient of
    KL(q‖p). Its mean is 0 at q = p, and it is not a bound. z′ comes from Hamiltonian
    Monte Carlo on q(z′|x) ∝ q(x|z′) q(z′), with one chain per x that starts at the z that made x.
    All chains share one step size. Each transition of the burn-in multiplies it by
    1 + 0.01 (a − 0.9)/0.9, where a is the mean acceptance, and the next step continues with it.

    **Arguments:**

    - `num_samples`: the number of samples of x per step.
    - `num_burn_in`, `num_kept`: the transitions of each chain that are discarded, and kept.
    - `num_leapfrog`: the number of leapfrog steps per transition.
    - `step_size`: the initial step size.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    objective = ksivi.UIVI(num_samples=100)
    ```

    Reference: Titsias and Ruiz, Unbiased Implicit Variational Inference, AISTATS 2019.
    """

    step_size: Array
    annealing: Schedule | None
    num_samples: int = eqx.field(static=True)
    num_burn_in: int = eqx.field(static=True)
    num_kept: int = eqx.field(static=True)
    num_leapfrog: int = eqx.field(static=True)

    def __init__(
        self,
        num_samples: int = 100,
        *,
        num_burn_in: int = 5,
        num_kept: int = 5,
        num_leapfrog: int = 5,
        step_size: float | Array = 0.2,
        annealing: Schedule | None = None,
    ):
        self.num_samples = as_count(num_samples, "num_samples")
        self.num_burn_in = as_count(num_burn_in, "num_burn_in", minimum=0)
        self.num_kept = as_count(num_kept, "num_kept")
        self.num_leapfrog = as_count(num_leapfrog, "num_leapfrog")
        self.step_size = as_positive(step_size, "step_size")
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def init(self, key: PRNGKeyArray, target, family: SemiImplicit) -> Chains:
        require_joint_density(family, "UIVI", "its chains run on q(z|x)")
        score = jnp.zeros((self.num_samples, family.dim), family.dtype)
        return Chains(self.step_size.astype(family.dtype), score)

    def draw(self, key, target, family) -> UIVIDraws:
        noise_key, momentum_key, level_key, rows_key = jax.random.split(key, 4)
        z, xi = family.noise(noise_key, self.num_samples)
        transitions = self.num_burn_in + self.num_kept
        momenta = family.normal(momentum_key, (transitions, *z.shape), z.dtype)
        levels = jax.random.uniform(level_key, momenta.shape[:2], z.dtype)
        return UIVIDraws(z, xi, momenta, levels, target.draw_rows(rows_key))

    def prepare(self, state, draws, target, family, step):
        """Runs the chains."""
        x, _ = family.transport((draws.z, draws.xi))
        positions = jax.vmap(lambda x, z: _at(family, x, z))(x, draws.z)
        move = jax.vmap(self._transition, in_axes=(None, 0, 0, 0, 0, None))

        def transition(carry: tuple, inputs: tuple) -> tuple[tuple, None]:
            positions, step_size, total = carry
            index, momenta, levels = inputs
            positions, acceptance = move(family, x, positions, momenta, levels, step_size)
            burning = index < self.num_burn_in
            factor = (
                1
                + _ADAPTATION_RATE
                * (jnp.mean(acceptance) - _TARGET_ACCEPTANCE)
                / _TARGET_ACCEPTANCE
            )
            score = jax.vmap(family.conditional.score)(x, positions.z)
            step_size = jnp.where(burning, step_size * factor, step_size)
            return (positions, step_size, jnp.where(burning, total, total + score)), None

        inputs = (jnp.arange(len(draws.levels)), draws.momenta, draws.levels)
        (_, step_size, total), _ = lax.scan(
            transition, (positions, state.step_size, jnp.zeros_like(x)), inputs
        )
        return Chains(step_size, total / self.num_kept)

    def loss(self, family, state, draws, target, step):
        target, heat = anneal(target.on_rows(draws.rows), self.annealing, step)
        x, _ = family.transport((draws.z, draws.xi))
        score = jax.vmap(target.score)(lax.stop_gradient(x))
        loss = path_loss(state.score - score, x)
        return loss, {**auxiliary(x, score, x, heat), "chain_step_size": state.step_size}

    @property
    def score_evals(self) -> int:
        return self.num_samples

    def _transition(
        self,
        family: SemiImplicit,
        x: Float[Array, " d"],
        start: Position,
        momentum: Float[Array, " k"],
        level: Scalar,
        step_size: Scalar,
    ) -> tuple[Position, Scalar]:
        """One transition of Hamiltonian Monte Carlo on z′ given x, and its acceptance probability.

        BlackJAX is not used, since the randomness is drawn ahead of the step.
        """

        def leapfrog(carry: tuple[Position, Array], _: None) -> tuple[tuple[Position, Array], None]:
            at, p = carry
            p = p + 0.5 * step_size * at.gradient
            at = _at(family, x, at.z + step_size * p)
            return (at, p + 0.5 * step_size * at.gradient), None

        (end, p), _ = lax.scan(leapfrog, (start, momentum), None, length=self.num_leapfrog)
        gain = end.log_density - start.log_density - 0.5 * (jnp.sum(p**2) - jnp.sum(momentum**2))
        # A trajectory that is not finite is never accepted.
        acceptance = jnp.where(jnp.isnan(gain), 0, jnp.exp(jnp.minimum(gain, 0)))
        return jax.tree.map(
            lambda a, b: jnp.where(level < acceptance, a, b), end, start
        ), acceptance


def _at(family: SemiImplicit, x: Float[Array, " d"], z: Float[Array, " k"]) -> Position:
    log_joint = lambda z: family.conditional.log_prob(x, z) + family.mixing.log_prob(z)  # noqa: E731
    return Position(z, *jax.value_and_grad(log_joint)(z))
