"""Mixing distributions q(z)."""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.checks import as_count, as_floats, as_positive, attributing_errors_to, describe
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

    @property
    def particles(self) -> Float[Array, "m k"] | None:
        """All z, if they are finitely many and equally likely. Then q(x) is known; otherwise None."""
        return None

    def widened(self, scale: Float[Array, ""]) -> "AbstractMixing":
        """A distribution with wider tails, for proposals: half of the draws are `scale` times z."""
        return WideMixing(self, scale)

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


@register
class ParticleMixing(AbstractMixing):
    r"""z is one of M stored particles, each with probability 1/M.

    A family with this mixing is a finite mixture, q(x) = 1/M Σₘ q(x|zₘ), whose density is known.

    **Arguments:**

    - `points`: one particle per row.

    ```python
    particles = jax.random.normal(jax.random.key(0), (100, 3))
    mixing = ksivi.families.ParticleMixing(particles)
    family = ksivi.SemiImplicit.mlp(jax.random.key(1), dim=2, mixing_dim=3, mixing=mixing)
    ```
    """

    points: Float[Array, "m k"]

    def __init__(self, points: Float[Array, "m k"]):
        self.points = as_floats(points, "points", "one particle per row")
        if self.points.ndim != 2 or 0 in self.points.shape:
            raise ValueError(f"points must be one particle per row, got {describe(points)}")

    @property
    def particles(self):
        return self.points

    def sample(self, key, n, dtype=float):
        chosen = jax.random.randint(key, (n,), 0, len(self.points))
        return self.points[chosen].astype(dtype)

    def log_prob(self, z):
        raise ValueError("particles have probabilities but no density")

    def widened(self, scale):
        return ParticleMixing(jnp.concatenate([self.points, scale * self.points]))


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


@register
class ModeMixing(AbstractMixing):
    r"""z = (e_k, u): a mode k with probability w_k, as a unit vector, and u from another distribution.

    A network of z can place separate modes without draws between them, which a continuous z cannot.

    **Arguments:**

    - `base`: the distribution of u, which is the same for all modes.
    - `shares`: w, one positive number per mode. They are normalised to sum to 1.

    ```python
    mixing = ksivi.families.ModeMixing(ksivi.families.GaussianMixing(3), jnp.array([0.7, 0.3]))
    ```
    """

    base: AbstractMixing
    shares: Float[Array, " m"]

    def __init__(self, base: AbstractMixing, shares: Float[Array, " m"]):
        found = as_floats(shares, "shares", "one positive number per mode")
        is_known = not isinstance(found, jax.core.Tracer)
        if found.ndim != 1 or not len(found) or (is_known and not bool(jnp.all(found > 0))):
            raise ValueError(f"shares must be one positive number per mode, got {describe(shares)}")
        self.base, self.shares = base, found / jnp.sum(found)

    @property
    def num_modes(self) -> int:
        return len(self.shares)

    def sample(self, key, n, dtype=float):
        modes = jax.random.categorical(jax.random.fold_in(key, 1), jnp.log(self.shares), shape=(n,))
        parts = jax.nn.one_hot(modes, self.num_modes, dtype=dtype), self.base.sample(key, n, dtype)
        return jnp.concatenate(parts, axis=1)

    def log_prob(self, z):
        mode, rest = z[: self.num_modes], z[self.num_modes :]
        return mode @ jnp.log(self.shares).astype(z.dtype) + self.base.log_prob(rest)

    def widened(self, scale):
        return ModeMixing(self.base.widened(scale), self.shares)

    def with_normals(self, normal):
        return ModeMixing(self.base.with_normals(normal), self.shares)
