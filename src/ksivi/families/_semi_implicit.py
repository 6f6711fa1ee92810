"""The semi-implicit family q(x) = ∫ q(x|z) q(z) dz."""

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.checks import (
    as_choice,
    as_count,
    as_positive,
    as_single_key,
    as_widths,
    attributing_errors_to,
    describe,
    require_points,
)
from .._core.normals import Normal
from .._core.numerics import log_mean_exp
from .._core.registry import register
from .._core.sharding import shard
from ._conditional import DiagonalGaussian, as_vector, log_var_start, place
from ._family import AbstractFamily, few_sizes
from ._layers import Triangular
from ._log_normals import exact_log_normals, log_normal, log_normals, mixture_scores
from ._mixing import AbstractMixing, GaussianMixing, ParticleMixing, SampledMixing
from ._networks import MLP, Constant

_POINTS_AT_ONCE = 1_000

Noise = tuple[Float[Array, "m k"], Float[Array, "n d"]]


@register
class SemiImplicit(AbstractFamily):
    r"""x = μ(z) + σ(z) ⊙ ξ with z ~ q(z) and ξ ~ N(0, I).

    It is easy to sample and flexible in shape. Its density is only known as an integral over z.

    **Arguments:**

    - `mixing`: the distribution of z, or a sampler (key) -> (k,).
    - `conditional`: q(x|z).
    - `layer`: an affine map that is applied to x and trained with the rest. The paper's family has
        none.

    ```python
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3, hidden=(50, 50))
    x = family.sample(jax.random.key(1), 1_000)
    ```
    """

    has_density: ClassVar[Literal[True]] = True

    mixing: AbstractMixing
    conditional: DiagonalGaussian
    dim: int = eqx.field(static=True)
    layer: Triangular | None = None
    normal: Normal = eqx.field(
        static=True, default=jax.random.normal, repr=False, metadata={"saved": False}
    )

    def __init__(
        self,
        mixing: AbstractMixing | Callable,
        conditional: DiagonalGaussian,
        layer: Triangular | None = None,
    ):
        self.layer = layer
        self.normal = jax.random.normal
        self.mixing = mixing if isinstance(mixing, AbstractMixing) else _sampled(mixing)
        if not isinstance(conditional, DiagonalGaussian):
            raise ValueError(f"conditional must be a DiagonalGaussian, got {describe(conditional)}")
        if not isinstance(layer, Triangular | None):
            raise ValueError(f"layer must be a Triangular or None, got {describe(layer)}")
        self.conditional = conditional
        self.dim = _output_dim(self.mixing, conditional)

    @classmethod
    def mlp(
        cls,
        key: PRNGKeyArray,
        dim: int,
        mixing_dim: int,
        hidden: Sequence[int] = (50, 50),
        *,
        log_var: float | Array = 0.0,
        min_log_var: float | Array = -20.0,
        scale: str = "global",
        activation: Callable = jax.nn.relu,
        mixing: AbstractMixing | Callable | None = None,
    ) -> "SemiImplicit":
        """The paper's family: Gaussian mixing, an MLP for μ, and a σ that does not depend on z.

        **Arguments:**

        - `hidden`: the widths of the hidden layers.
        - `log_var`: the initial log σ², one number or one per coordinate.
        - `min_log_var`: the floor on σ, as a bound of log σ²: one number or one per coordinate. Below
            it σ stays at the floor without gradient. For example, `math.log(0.2)` keeps σ² ≥ 0.2.
        - `scale`: "global" for the paper's σ, "network" for σ(z) from an MLP of the same widths.
        - `mixing`: another distribution of z, of dimension `mixing_dim`.
        """
        key = as_single_key(key)
        dim, mixing_dim = as_count(dim, "dim"), as_count(mixing_dim, "mixing_dim")
        as_choice(scale, "scale", ("global", "network"))
        mean_key, scale_key = jax.random.split(key)
        widths = (mixing_dim, *as_widths(hidden, "hidden"), dim)
        start = log_var_start(log_var, min_log_var, dim)
        log_var_map: Callable = Constant(start)
        if scale == "network":
            log_var_map = MLP(scale_key, widths, activation).with_output(0.1, start)
        conditional = DiagonalGaussian(MLP(mean_key, widths, activation), log_var_map, min_log_var)
        return cls(GaussianMixing(mixing_dim) if mixing is None else mixing, conditional)

    @classmethod
    def location_scale(
        cls,
        dim: int,
        *,
        loc: float | Array = 0.0,
        log_var: float | Array = 0.0,
        min_log_var: float | Array = -20.0,
    ) -> "SemiImplicit":
        """The diagonal Gaussian N(loc, diag σ²), which ignores z, as in the paper's theory."""
        dim = as_count(dim, "dim")
        mean, scale = (
            Constant(as_vector(loc, "loc", dim)),
            Constant(log_var_start(log_var, min_log_var, dim)),
        )
        return cls(GaussianMixing(0), DiagonalGaussian(mean, scale, min_log_var))

    @property
    def dtype(self) -> jnp.dtype:
        """The precision of the parameters. Draws use it, whatever JAX's default precision is."""
        return jnp.result_type(*filter(eqx.is_inexact_array, jax.tree.leaves(self.conditional)))

    @property
    def mixing_dim(self) -> int:
        """The dimension of z."""
        draw = lambda key: self.mixing.sample(key, 1)  # noqa: E731
        return eqx.filter_eval_shape(draw, jax.random.key(0)).shape[1]

    def with_normals(self, normal: Normal) -> "SemiImplicit":
        """The same family, whose z and ξ come from standard normals that `normal` makes."""
        family = copy.copy(self)  # not by `__init__`, which would find the dimension again
        object.__setattr__(family, "mixing", self.mixing.with_normals(normal))
        object.__setattr__(family, "normal", normal)
        return family

    def with_particles(self, z: Float[Array, "m k"]) -> "SemiImplicit":
        """The finite mixture 1/M Σₘ q(x|zₘ), with the same conditional."""
        return eqx.tree_at(lambda family: family.mixing, self, ParticleMixing(z))

    def widened(self, scale: float | Scalar) -> "SemiImplicit":
        """The same family with a wider mixing distribution, for proposals."""
        wide = self.mixing.widened(as_positive(scale, "scale"))
        return eqx.tree_at(lambda family: family.mixing, self, wide)

    def noise(self, key: PRNGKeyArray, n: int, noise_per_z: int = 1) -> Noise:
        """All the randomness of the samples: n draws of z, and `noise_per_z` of ξ for each z."""
        z_key, xi_key = jax.random.split(key)
        xi = self.normal(xi_key, (n * noise_per_z, self.dim), self.dtype)
        return self.mixing.sample(z_key, n, self.dtype), xi

    def transport(
        self, noise: Noise, others: Float[Array, "m k"] | None = None
    ) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """Samples x and conditional scores ∇ₓ log q(x|z). Samples with the same z are adjacent.

        With `others`, which may be none at all, the scores are those of the mixture 1/m Σₖ q(x|zₖ)
        over the z of the noise and the others.
        """
        z, xi = (shard(part, "samples") for part in noise)
        every = z if others is None else jnp.concatenate([z, others])
        mean, log_var = jax.vmap(self.conditional.parameters)(every)
        times = len(xi) // len(z)
        own = [jnp.repeat(part[: len(z)], times, axis=0) for part in (mean, log_var)]
        x, score = place(own[0], own[1], xi)
        if others is not None:
            score = mixture_scores(x, mean, log_var)
        return (x, score) if self.layer is None else (self.layer(x), self.layer.push_score(score))

    def trace_precision(self, z: Float[Array, "m k"]) -> Float[Array, " m"]:
        """tr D(z)⁻¹ with D(z) the covariance of q(x|z): the mean of ‖∇ₓ log q(x|z)‖², given z."""
        precision = jnp.exp(-jax.vmap(self.conditional.parameters)(z)[1])
        if self.layer is None:
            return jnp.sum(precision, axis=1)
        return precision @ self.layer.squared_norms_of_inverse()

    def marginal_variances(self, z: Float[Array, "m k"]) -> Float[Array, " d"]:
        """The variance of each coordinate of x under the mixture of q(x|z) over these z."""
        mean, log_var = jax.vmap(self.conditional.parameters)(z)
        variance = jnp.exp(log_var)
        if self.layer is not None:
            mean, variance = self.layer(mean), variance @ self.layer.matrix.T**2
        return jnp.mean(variance, axis=0) + jnp.var(mean, axis=0)

    def transport_and_log_prob(
        self, noise: Noise, others: Float[Array, "m k"], pairwise: Callable = log_normals
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        r"""Samples x and log q̂(x) = log 1/(m+1) Σₖ q(x|zₖ), over the z that made x and m `others`.

        With the generating z in the sum, E[p(x)/q̂(x)] = ∫p for every m. Without it such ratios
        explode.
        """
        z, xi = (shard(part, "samples") for part in noise)
        parameters = jax.vmap(self.conditional.parameters)(jnp.concatenate([z, others]))
        (mean, means), (log_var, log_vars) = (jnp.split(part, [len(z)]) for part in parameters)
        x = place(mean, log_var, xi)[0]
        log_q = jax.vmap(log_normal)(xi, log_var)
        if len(others):
            log_q = log_mean_exp(
                jnp.concatenate([log_q[:, None], pairwise(x, means, log_vars)], axis=1)
            )
        return (x, log_q) if self.layer is None else (self.layer(x), log_q - self.layer.log_det())

    def log_mixture(self, x: Float[Array, "n d"], z: Float[Array, "m k"]) -> Float[Array, " n"]:
        """log 1/m Σₖ q(x|zₖ) at given points and z, by matrix products, for training."""
        parameters = jax.vmap(self.conditional.parameters)(z)
        return self._through_layer(x, lambda u: log_mean_exp(log_normals(u, *parameters)))

    def log_parts(
        self, x: Float[Array, "n d"], z: Float[Array, "n k"], others: Float[Array, "m k"]
    ) -> Float[Array, "n 1+m"]:
        """log q(xᵢ|zᵢ) in the first column and log q(xᵢ|z) for the m `others` in the rest.

        For training.
        """
        parameters = jax.vmap(self.conditional.parameters)(jnp.concatenate([z, others]))
        (mean, means), (log_var, log_vars) = (jnp.split(part, [len(z)]) for part in parameters)
        u = x if self.layer is None else self.layer.inverse(x)
        first = jax.vmap(log_normal)((u - mean) * jnp.exp(-0.5 * log_var), log_var)
        parts = jnp.concatenate([first[:, None], log_normals(u, means, log_vars)], axis=1)
        return parts if self.layer is None else parts - self.layer.log_det()

    def sample_and_log_prob(
        self, key: PRNGKeyArray, n: int, num_mixing: int
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """n draws of x with log q̂(x), over the z that made x and `num_mixing` others.

        With finitely many z it is log q(x).
        """
        noise_key, mixing_key = jax.random.split(key)
        noise = self.noise(noise_key, n)
        if self.mixing.particles is not None:
            x = self.transport(noise)[0]
            return x, self.log_prob(mixing_key, x, num_mixing)
        others = self.mixing.sample(mixing_key, num_mixing, self.dtype)
        return self.transport_and_log_prob(noise, others, exact_log_normals)

    def log_prob(
        self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int
    ) -> Float[Array, " n"]:
        """log 1/K Σₖ q(x|zₖ) over K = `num_mixing` new draws of z.

        It is too low on average, and far too low for small K. With finitely many z the sum is over
        all of them, and exact.
        """
        key, num_mixing = as_single_key(key), as_count(num_mixing, "num_mixing")
        require_points(x, self.dim)
        z = self.mixing.particles
        z = self.mixing.sample(key, num_mixing, self.dtype) if z is None else z.astype(self.dtype)
        mean, log_var = jax.vmap(self.conditional.parameters)(z)
        log_mixture = lambda point: log_mean_exp(exact_log_normals(point[None], mean, log_var))[0]  # noqa: E731
        in_blocks = lambda u: lax.map(log_mixture, u, batch_size=_POINTS_AT_ONCE)  # noqa: E731
        return self._through_layer(x.astype(self.dtype), in_blocks)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n independent draws of x."""
        return self.transport(self.noise(as_single_key(key), as_count(n, "n")))[0]

    def draw_size(self, n: int) -> int:
        return few_sizes(n)

    def _through_layer(self, x: Float[Array, "n d"], log_prob: Callable) -> Float[Array, " n"]:
        """The log density at x, from the log density before the layer."""
        if self.layer is None:
            return log_prob(x)
        return log_prob(self.layer.inverse(x)) - self.layer.log_det()


def _output_dim(mixing: AbstractMixing, conditional: DiagonalGaussian) -> int:
    """The dimension of x. Raises `ValueError` unless mean and log_var agree on it."""
    try:
        shapes = eqx.filter_eval_shape(
            lambda key: conditional.parameters(mixing.sample(key, 1)[0]), jax.random.key(0)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"mixing and conditional do not fit together: {error}") from error
    mean, log_var = shapes
    if mean.ndim != 1 or mean.shape != log_var.shape:
        raise ValueError(
            "mean and log_var must map z to vectors of one length, got shapes "
            f"{mean.shape} and {log_var.shape}"
        )
    return mean.shape[0]


def _sampled(mixing: Callable) -> SampledMixing:
    if not callable(mixing):
        raise ValueError(
            f"mixing must be a distribution of z or a function of a key, got {describe(mixing)}"
        )
    with attributing_errors_to("mixing"):
        return SampledMixing(mixing)
