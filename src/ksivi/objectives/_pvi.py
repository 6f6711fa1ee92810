"""PVI: a finite mixture whose particles move by Langevin steps."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Scalar

from .._core.checks import as_count, as_positive
from ..families import SemiImplicit
from ..targets import Target
from ._objective import AbstractObjective, auxiliary, held
from ._schedules import Schedule, anneal, as_schedule

_MEMORY, _TINY = 0.9, 1e-8


class PVIDraws(NamedTuple):
    """The randomness of one step: the noise of the Langevin step, and two batches of noise and data
    rows, for the particles and for the conditional."""

    langevin: Float[Array, "m k"]
    batches: tuple[Float[Array, "2 n d"], Int[Array, "2 b"] | None]


class Particles(NamedTuple):
    """The particles zₘ, and a running mean of their squared gradients, one per coordinate."""

    z: Float[Array, "m k"]
    squares: Float[Array, " k"]


class PVI(AbstractObjective):
    r"""Minimises KL(q‖p) for q(x) = 1/M Σₘ q(x|zₘ), over the conditional and the particles zₘ.

    M particles zₘ take the place of the family's mixing: q(x) is a finite mixture with a known
    density, and the posterior draws from it. Each step moves the particles along the gradient,
    divided by its root mean square v^½. A small λ keeps them apart, by Langevin noise η, and near
    N(0, I):

        zₘ ← zₘ − h (v^−½ gₘ + λ zₘ) + √(2hλ) η,   gₘ = ∇_z E_ξ[log q(x) − log p(x)] at z = zₘ

    with x = μ(z) + σ(z) ξ. Then the conditional takes a step on E[log q(x) − log p(x)]. Both
    gradients flow through x only, with the density q held constant (path gradients), which has no
    bias. If the target has values, the loss is KL(q‖p) − log ∫p.

    **Arguments:**

    - `num_particles`: M. They start as draws from the family's mixing, or as its particles.
    - `noise_per_z`: the number of ξ for each particle, in each of the two updates.
    - `step_size`: h.
    - `temperature`: λ.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3)
    objective = ksivi.objectives.PVI(num_particles=50)
    fit = ksivi.train(jax.random.key(1), target, family, objective, num_steps=200)
    exact = fit.posterior.log_prob(jax.random.key(2), jnp.zeros((1, 2)))
    ```

    Reference: Lim and Johansen, Particle Semi-Implicit Variational Inference, NeurIPS 2024.
    """

    step_size: Array
    temperature: Array
    annealing: Schedule | None
    num_particles: int = eqx.field(static=True)
    noise_per_z: int = eqx.field(static=True)

    def __init__(
        self,
        num_particles: int = 100,
        noise_per_z: int = 1,
        *,
        step_size: float | Array = 1e-2,
        temperature: float | Array = 1e-8,
        annealing: Schedule | None = None,
    ):
        self.num_particles = as_count(num_particles, "num_particles")
        self.noise_per_z = as_count(noise_per_z, "noise_per_z")
        self.step_size = as_positive(step_size, "step_size")
        self.temperature = as_positive(temperature, "temperature")
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")

    def init(self, key, target, family) -> Particles:
        z = family.mixing.particles
        z = family.mixing.sample(key, self.num_particles, family.dtype) if z is None else z
        if len(z) != self.num_particles:
            raise ValueError(
                f"num_particles must be that of the family's mixing, {len(z)}, "
                f"got {self.num_particles}"
            )
        return Particles(z.astype(family.dtype), jnp.zeros(z.shape[1], family.dtype))

    def draw(self, key, target, family) -> PVIDraws:
        noise_key, langevin_key, rows_key = jax.random.split(key, 3)
        xi = family.normal(noise_key, (2, self._batch, family.dim), family.dtype)
        shape = (self.num_particles, family.mixing_dim)
        langevin = family.normal(langevin_key, shape, family.dtype)
        return PVIDraws(langevin, (xi, target.draw_rows(jax.random.split(rows_key))))

    def prepare(self, state, draws, target, family, step):
        """Moves the particles."""
        xi, rows = jax.tree.map(lambda a: a[0], draws.batches)
        target, _ = anneal(target.on_rows(rows), self.annealing, step)
        slopes, _ = jax.grad(_divergence, argnums=1, has_aux=True)(family, state.z, xi, target)
        slope = self.num_particles * slopes
        squares = _MEMORY * state.squares + (1 - _MEMORY) * jnp.mean(slope**2, axis=0)
        h, heat = (one.astype(slope.dtype) for one in (self.step_size, self.temperature))
        drift = slope / jnp.maximum(jnp.sqrt(squares), _TINY)[None] + heat * state.z
        return Particles(state.z - h * drift + jnp.sqrt(2 * h * heat) * draws.langevin, squares)

    def loss(self, family, state, draws, target, step):
        xi, rows = jax.tree.map(lambda a: a[1], draws.batches)
        target, heat = anneal(target.on_rows(rows), self.annealing, step)
        value, (x, score) = _divergence(family, state.z, xi, target)
        return value, auxiliary(x, score, x, heat)

    def sampler(self, family, state):
        return family.with_particles(state.z)

    @property
    def score_evals(self) -> int:
        return 2 * self._batch

    @property
    def num_minibatches(self) -> int:
        return 2

    @property
    def _batch(self) -> int:
        return self.num_particles * self.noise_per_z


def _divergence(
    family: SemiImplicit, z: Float[Array, "m k"], xi: Float[Array, "n d"], target: Target
) -> tuple[Scalar, tuple[Float[Array, "n d"], Float[Array, "n d"]]]:
    """E[log q(x) − log p(x)], whose gradient flows through x only; x and the scores there."""
    x, _ = family.transport((z, xi))
    log_q = held(family).log_mixture(x, lax.stop_gradient(z))
    log_p, score = jax.vmap(target.surrogate)(x)
    return jnp.mean(log_q - log_p), (x, score)
