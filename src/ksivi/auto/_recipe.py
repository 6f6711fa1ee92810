"""The settings of `fit`: sizes and rates, each with its reason."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.checks import as_count, as_positive, as_widths
from ..families import (
    MLP,
    AbstractMixing,
    DiagonalGaussian,
    GaussianMixing,
    ModeMixing,
    PerMode,
    SemiImplicit,
    Triangular,
)
from ..objectives import SIVI, Jeffreys, MaximumLikelihood, Wake
from ._modes import Blobs


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of `fit`. The defaults are the same for all targets.

    **Attributes:**

    - `num_runs`: number of independent runs. The best one is returned, and all are compared.
    - `num_samples`: N of `Wake`. SIVI's bound has half as many, because its scores are expensive.
    - `num_mixing`: K of both objectives. Default: by dimension.
    - `hidden`: widths of the networks for μ(z) and σ(z).
    - `learning_rate`: learning rate until the bound has settled. Then it decreases to 0 as a
        cosine.
    - `num_pretraining`: number of steps of the first stage, on Jeffreys' divergence to the rough
        draws.
    - `max_steps`: maximum number of training steps, including the cooling. A run whose bound does
        not settle takes all of them.
    - `chunk`: maximum number of steps between checks of the bound.
    """

    num_runs: int = 2
    num_samples: int = 64
    num_mixing: int | None = None
    hidden: tuple[int, ...] = (32, 32)
    learning_rate: float = 3e-3
    num_pretraining: int = 1_500
    max_steps: int = 4_500
    chunk: int = 500

    def __post_init__(self):
        for name in ("num_runs", "num_samples", "max_steps", "chunk"):
            as_count(getattr(self, name), name)
        if self.num_mixing is not None:
            as_count(self.num_mixing, "num_mixing")
        as_count(self.num_pretraining, "num_pretraining", minimum=0)
        as_widths(self.hidden, "hidden")
        as_positive(self.learning_rate, "learning_rate")

    def mixing_dim(self, dim: int) -> int:
        """The dimension of z. Directions in which the target is nearly Gaussian need none."""
        return min(max(dim, 4), 10)

    def family(
        self, key: PRNGKeyArray, dim: int, is_gaussian: bool, blobs: Blobs | None = None
    ) -> SemiImplicit:
        """A family near N(0, I) in whitened coordinates, with an affine layer.

        **Arguments:**

        - `is_gaussian`: whether one Gaussian is nearly enough. Otherwise σ(z) starts small: with
            narrow components, maximum likelihood finds separate modes; with wide ones, it stays at
            one blob.
        - `blobs`: the separate modes, if there are several. Each has its own coordinates.
        """
        mean_key, scale_key = jax.random.split(key)
        mixing_dim, num_modes = self.mixing_dim(dim), 0 if blobs is None else len(blobs.shares)
        widths = (num_modes + mixing_dim, *self.hidden, dim)
        # silu is unbounded; tanh would cut the tails of μ and σ.
        mean = MLP(mean_key, widths, jax.nn.silu).with_output(1.0, 0.0)
        log_var = MLP(scale_key, widths, jax.nn.silu).with_output(0.1, 0.0 if is_gaussian else -2.0)
        mixing: AbstractMixing = GaussianMixing(mixing_dim)
        maps: tuple[MLP, MLP] | tuple[PerMode, PerMode] = (mean, log_var)
        if blobs is not None:
            mixing, maps = ModeMixing(mixing, blobs.shares), _per_mode(mean, log_var, blobs)
        conditional = DiagonalGaussian(maps[0], maps[1], min_log_var=-14.0)
        return SemiImplicit(mixing, conditional, Triangular.identity(dim))

    def mixing_draws(self, dim: int) -> int:
        """K: smaller in high dimension, where each z costs more."""
        return self.num_mixing or (256 if dim <= 20 else 128)

    def objective(self, dim: int) -> Jeffreys:
        """Both divergences at draws of the family. SIVI's bound alone misses tails."""
        return Jeffreys(
            self._bound(dim), Wake(self.num_samples, self.mixing_draws(dim), scale=1.75), share=0.75
        )

    def first_objective(self, points: Float[Array, "n d"]) -> Jeffreys:
        """Jeffreys' divergence to points. Maximum likelihood alone allows stray draws."""
        dim = points.shape[1]
        return Jeffreys(
            self._bound(dim),
            MaximumLikelihood(points, self.num_samples, 2 * self.mixing_draws(dim)),
        )

    def _bound(self, dim: int) -> SIVI:
        return SIVI(-(-self.num_samples // 2), self.mixing_draws(dim))

    def fewest_steps(self, is_gaussian: bool) -> int:
        """Minimum number of steps: fewer if one Gaussian is nearly enough."""
        return 1_500 if is_gaussian else 2_000

    def num_starts(self, dim: int) -> int:
        """Number of starts of the search: fewer in high dimension, where each costs more."""
        return 12 if dim <= 20 else 6

    def scans(self, dim: int) -> bool:
        """Whether to look for further modes. In high dimension, Gaussians there are expensive."""
        return dim <= 50


def _per_mode(mean: MLP, log_var: MLP, blobs: Blobs) -> tuple[PerMode, PerMode]:
    """μ(z) and log σ²(z) in the coordinates of each mode."""
    log_widths2 = jnp.log(jnp.sum(blobs.roots**2, axis=2))
    return PerMode(mean, blobs.centres, blobs.roots), PerMode(log_var, log_widths2)


def optimizer(rate: Scalar) -> optax.GradientTransformation:
    """Adam with gradients clipped at a norm that only outliers exceed."""
    return optax.chain(optax.clip_by_global_norm(jnp.asarray(10.0)), optax.adam(rate))
