"""Mixing distributions q(z)."""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.checks import as_count, as_positive, attributing_errors_to
from .._core.normals import Normal
from .._core.registry import register
from ._frozen import AbstractFrozen


class AbstractMixing(AbstractFrozen):
    """A distribution of z that is easy to sample. It is not trained: z is drawn ahead of a step."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n k"]:
        """n independent draws of z."""

    @abc.abstractmethod
    def log_prob(self, z: Float[Array, " k"]) -> Scalar:
        """log q(z). Raises `ValueError` if it is not known."""

    def with_normals(self, normal: Normal) -> "AbstractMixing":
        """The same distribution, with `normal` in place of `jax.random.normal` if it uses it.

        A mixing distribution that wraps another one passes `normal` on to it.
        """
        return self


@register
class GaussianMixing(AbstractMixing):
    """z ~ N(0, I), the paper's choice."""

    dim: int = eqx.field(static=True)
    normal: Normal = eqx.field(
        static=True, default=jax.random.normal, repr=False, metadata={"saved": False}
    )

    def __check_init__(self):
        as_count(self.dim, "mixing_dim", minimum=0)

    def sample(self, key, n, dtype=float):
        return self.normal(key, (n, self.dim), dtype)

    def log_prob(self, z):
        return -0.5 * jnp.sum(z**2 + jnp.log(2 * jnp.pi))

    def with_normals(self, normal):
        return dataclasses.replace(self, normal=normal)


class SampledMixing(AbstractMixing):
    """A mixing distribution given by a sampler, `sampler(key) -> (k,)`.

    **Arguments:**

    - `sampler`: draws one z.
    - `log_density`: log q(z), which some objectives need.

    ```python
    mixing = ksivi.families.SampledMixing(lambda key: jax.random.laplace(key, (3,)))
    ```
    """

    sampler: Callable[[PRNGKeyArray], Float[Array, " k"]]
    log_density: Callable[[Float[Array, " k"]], Scalar] | None = None

    def __check_init__(self):
        if not callable(self.sampler):
            raise ValueError(f"sampler must be a function of a key, got {self.sampler!r}")
        with attributing_errors_to("sampler"):
            z = jax.eval_shape(lambda key: jnp.asarray(self.sampler(key)), jax.random.key(0))
        if z.ndim != 1 or not jnp.issubdtype(z.dtype, jnp.floating):
            raise ValueError(
                f"sampler must return one floating vector, got shape {z.shape} and dtype {z.dtype}"
            )

    def sample(self, key, n, dtype=float):
        return jax.vmap(self.sampler)(jax.random.split(key, n)).astype(dtype)

    def log_prob(self, z):
        if self.log_density is None:
            raise ValueError("this mixing distribution has a sampler but no log_density")
        return self.log_density(z)


class WideMixing(AbstractMixing):
    r"""½ q(z) + ½ q(z / s) / sᵏ: at least half the density of q(z) everywhere, with wider tails.

    A family with this mixing reaches places that the family itself rarely draws, so that importance
    weights have lighter tails. It is for proposals and is not saved.

    ```python
    mixing = ksivi.families.WideMixing(ksivi.families.GaussianMixing(3), scale=1.5)
    ```
    """

    base: AbstractMixing
    scale: Float[Array, ""]

    def __init__(self, base: AbstractMixing, scale: float | Array):
        self.base = base
        self.scale = as_positive(scale, "scale")

    def sample(self, key, n, dtype=float):
        # With scale 1 these are the same draws as those of the base.
        z, is_wide = (
            self.base.sample(key, n, dtype),
            jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, (n, 1)),
        )
        return jnp.where(is_wide, self.scale.astype(dtype), 1) * z

    def log_prob(self, z):
        wide = self.base.log_prob(z / self.scale) - len(z) * jnp.log(self.scale)
        return jnp.logaddexp(self.base.log_prob(z), wide) - jnp.log(2.0)

    def with_normals(self, normal):
        return WideMixing(self.base.with_normals(normal), self.scale)
