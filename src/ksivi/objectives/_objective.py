"""The interface of objectives, so that one training loop serves all of them."""

import abc
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from ..families import Noise, SemiImplicit
from ..targets import Target, Temperature, stein_ratio

Module = TypeVar("Module", bound=eqx.Module)
Aux = dict[str, Scalar]
"""Numbers that a step records besides its loss, by name."""


class AbstractObjective(eqx.Module):
    """A loss for a semi-implicit family, with the inner state that it needs (a critic, chains).

    A training step calls `draw` and `prepare`, and then takes a gradient step on `loss`.
    """

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, target: Target, family: SemiImplicit) -> PyTree:
        """The inner state before the first step.

        Raises `ValueError` for a target or family that the objective cannot use.
        """

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, target: Target, family: SemiImplicit) -> PyTree:
        """All the randomness of one step.

        It must not depend on parameters: the randomness of many steps is drawn together.
        """

    def prepare(
        self,
        state: PyTree,
        draws: PyTree,
        target: Target,
        family: SemiImplicit,
        step: Int[Array, ""],
    ) -> PyTree:
        """The inner state that the loss of this step uses. By default it does not change."""
        return state

    @abc.abstractmethod
    def loss(
        self,
        family: SemiImplicit,
        state: PyTree,
        draws: PyTree,
        target: Target,
        step: Int[Array, ""],
    ) -> tuple[Scalar, Aux]:
        """The loss to minimise over the family, and numbers to record: at least `stein_ratio`."""

    def sampler(self, family: SemiImplicit, state: PyTree) -> SemiImplicit:
        """The family that the posterior draws from. By default it is the trained family.

        An objective whose inner state is a part of q, such as particles, adds it here.
        """
        return family

    @property
    @abc.abstractmethod
    def score_evals(self) -> int:
        """The number of evaluations of the target's score in one step."""

    @property
    def num_minibatches(self) -> int:
        """The number of data minibatches in one step, for a target that has minibatches."""
        return 1


def path_loss(force: Float[Array, "n d"], x: Float[Array, "n d"]) -> Scalar:
    """E⟨f, x⟩ with f held constant: its gradient in φ is E[(∂x/∂φ)ᵀ f].

    This is the gradient of KL(q‖p) if E[f|x] = ∇ log q(x) − s_p(x). The value is 0 at q = p, and it
    is not a bound.
    """
    return jnp.mean(jnp.sum(lax.stop_gradient(force) * x, axis=1))


def held(module: Module) -> Module:
    """The same module, with all arrays held constant."""
    return jax.tree.map(lambda a: lax.stop_gradient(a) if eqx.is_array(a) else a, module)


def noise_of_batches(key: PRNGKeyArray, family: SemiImplicit, batches: int, n: int) -> Noise:
    """Mixing variables and noise of several batches of n samples, each from its own key."""
    return jax.vmap(lambda k: family.noise(k, n))(jax.random.split(key, batches))


def require_mixing_density(family: SemiImplicit, name: str, reason: str) -> None:
    """Raises `ValueError` unless q(z) is known."""
    try:
        eqx.filter_eval_shape(family.mixing.log_prob, jnp.zeros(family.mixing_dim, family.dtype))
    except ValueError as error:
        raise ValueError(
            f"{name} needs the density of the mixing, since {reason}: {error}"
        ) from error


def require_joint_density(family: SemiImplicit, name: str, reason: str) -> None:
    """Raises `ValueError` unless q(z) and q(x|z) are known as functions of z."""
    if family.layer is not None:
        raise ValueError(f"{name} needs a family without an affine layer, since {reason}")
    require_mixing_density(family, name, reason)


def auxiliary(
    x: Float[Array, "n d"],
    score: Float[Array, "n d"],
    others: Float[Array, "m d"],
    heat: Temperature | None,
) -> Aux:
    """The numbers that every objective records.

    **Arguments:**

    - `x`, `score`, `others`: as in `stein_ratio`.
    - `heat`: the temperature, if the score is that of an annealed target. The Stein ratio refers to
        the target itself.
    """
    x, score, others = lax.stop_gradient((x, score, others))
    if heat is None:
        return {"stein_ratio": stein_ratio(x, score, others)}
    ratio = stein_ratio(x, heat.undone(score, x), others)
    return {"stein_ratio": ratio, "inverse_temperature": heat.beta}
