"""A proposal for z given x: the mixing distribution and a Gaussian from a network, mixed."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..families import MLP, AbstractMixing, SemiImplicit, log_normal

_MOST_LOG_VAR = 20.0
"""Limit of |log s²|: beyond it, variances overflow in single precision."""


class ProposalNoise(NamedTuple):
    """The randomness of proposals: draws of both parts, and levels that choose between them."""

    mixing: Float[Array, "*n k"]
    normal: Float[Array, "*n k"]
    levels: Float[Array, "*n"]


class Proposal(eqx.Module):
    r"""τ(z|x) = α(x) q(z) + (1 − α(x)) N(z; m(x), diag s²(x)).

    α(x) is α_min + (1 − α_min) sigmoid(a(x)), and a network maps x to m, log s² and a.
    """

    mixing: AbstractMixing
    network: MLP
    min_share: Scalar

    def sample(self, noise: ProposalNoise, x: Float[Array, " d"]) -> Float[Array, "l k"]:
        """One z for each row of the noise."""
        mean, log_var, logit = self._parameters(x)
        share = self.min_share + (1 - self.min_share) * jax.nn.sigmoid(logit)
        local = mean[None] + jnp.exp(0.5 * log_var)[None] * noise.normal
        return jnp.where((noise.levels < share)[:, None], noise.mixing, local)

    def log_prob(self, z: Float[Array, " k"], x: Float[Array, " d"]) -> Scalar:
        """log τ(z|x)."""
        mean, log_var, logit = self._parameters(x)
        local = log_normal((z - mean) * jnp.exp(-0.5 * log_var), log_var)
        log_rest = jnp.log1p(-self.min_share) + jax.nn.log_sigmoid(-logit)
        log_share = jnp.log(self.min_share + (1 - self.min_share) * jax.nn.sigmoid(logit))
        return jnp.logaddexp(log_share + self.mixing.log_prob(z), log_rest + local)

    def log_weight(self, z: Float[Array, " k"], x: Float[Array, " d"]) -> Scalar:
        """log q(z)/τ(z|x), at most −log α_min."""
        return self.mixing.log_prob(z) - self.log_prob(z, x)

    def _parameters(
        self, x: Float[Array, " d"]
    ) -> tuple[Float[Array, " k"], Float[Array, " k"], Scalar]:
        found = self.network(x)
        mean, log_var = jnp.split(found[:-1], 2)
        return mean, jnp.clip(log_var, -_MOST_LOG_VAR, _MOST_LOG_VAR), found[-1]


def draw_proposals(
    key: PRNGKeyArray, family: SemiImplicit, shape: tuple[int, int]
) -> ProposalNoise:
    """The randomness of this many proposals for this many x."""
    mixing_key, normal_key, level_key = jax.random.split(key, 3)
    mixing = family.mixing.sample(mixing_key, shape[0] * shape[1], family.dtype)
    mixing = mixing.reshape(*shape, mixing.shape[1])
    normal = family.normal(normal_key, mixing.shape, family.dtype)
    levels = jax.random.uniform(level_key, shape, family.dtype)
    return ProposalNoise(mixing, normal, levels)
