"""The gradient of KL(q‖p), smoothed by a kernel: the base of two objectives."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, Float, Int

from ..kernels import AbstractKernel
from ._objective import AbstractObjective, auxiliary, noise_of_batches, path_loss
from ._schedules import Schedule, anneal


class SmoothedDraws(NamedTuple):
    """The randomness of one step: mixing variables and noise of two batches, and data rows."""

    z: Float[Array, "2 n k"]
    xi: Float[Array, "2 n d"]
    rows: Int[Array, " b"] | None


class AbstractSmoothed(AbstractObjective):
    """E⟨f(x), x⟩ with f held constant, and f(x) = E′[k(x, x′) (∇ log q(x′) − s_p(x′))].

    f is estimated with a second batch. The bandwidth is that of the pairs between both batches.
    """

    kernel: eqx.AbstractVar[AbstractKernel]
    annealing: eqx.AbstractVar[Schedule | None]
    num_samples: eqx.AbstractVar[int]

    @abc.abstractmethod
    def force(
        self,
        kernel: AbstractKernel,
        x: Float[Array, "n d"],
        others: Float[Array, "n d"],
        score: Float[Array, "n d"],
        conditional_score: Float[Array, "n d"],
    ) -> Float[Array, "n d"]:
        """An estimate of f at x from the other batch, its target scores and its ∇ log q(x|z)."""

    def init(self, key, target, family) -> None:
        return None

    def draw(self, key, target, family) -> SmoothedDraws:
        noise_key, rows_key = jax.random.split(key)
        z, xi = noise_of_batches(noise_key, family, 2, self.num_samples)
        return SmoothedDraws(z, xi, target.draw_rows(rows_key))

    def loss(self, family, state, draws, target, step):
        target, heat = anneal(target.on_rows(draws.rows), self.annealing, step)
        x, _ = family.transport((draws.z[0], draws.xi[0]))
        others, conditional_score = lax.stop_gradient(family.transport((draws.z[1], draws.xi[1])))
        score, at = jax.vmap(target.score)(others), lax.stop_gradient(x)
        kernel = self.kernel.resolve(at, others)
        force = self.force(kernel, at, others, score, conditional_score)
        return path_loss(force, x), auxiliary(others, score, others, heat)

    @property
    def score_evals(self) -> int:
        return self.num_samples
