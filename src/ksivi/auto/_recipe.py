"""What `fit` does, as a value: sizes and rates, each with the rule that chose it."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.checks import as_count, as_positive, as_widths
from ..families import MLP, DiagonalGaussian, GaussianMixing, SemiImplicit, Triangular
from ..objectives import SIVI, Jeffreys, MaximumLikelihood, Wake


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of `fit`: one set for all targets.

    **Attributes:**

    - `num_runs`: independent runs, trained at once, of which the best is kept and all are compared.
    - `num_samples`: N of `Wake`; SIVI's bound, whose scores are what costs, has half as many.
    - `num_mixing`: K of either half; by dimension unless given.
    - `hidden`: widths of the networks for μ(z) and σ(z).
    - `learning_rate`: until the bound has settled; a cosine to 0 follows.
    - `num_pretraining`: steps of the first stage, on Jeffreys' divergence with rough draws for points.
    - `max_steps`: at most, cooling included.
    - `chunk`: steps between looks.
    """

    num_runs: int = 2
    num_samples: int = 64
    num_mixing: int | None = None
    hidden: tuple[int, ...] = (32, 32)
    learning_rate: float = 3e-3
    num_pretraining: int = 1_500
    max_steps: int = 5_000
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
        """Of z: enough for as many independent shapes; near-Gaussian directions need none of them."""
        return min(max(dim, 4), 10)

    def family(self, key: PRNGKeyArray, dim: int, is_gaussian: bool) -> SemiImplicit:
        """Near N(0, I) in whitened coordinates, with a μ(z) that already spreads, and an affine layer.

        **Arguments:**

        - `is_gaussian`: whether one Gaussian was nearly enough. Otherwise σ(z) starts small: maximum likelihood finds
            separate modes with narrow parts, and stays at one wide blob with wide ones.
        """
        mean_key, scale_key = jax.random.split(key)
        mixing_dim = self.mixing_dim(dim)
        widths = (mixing_dim, *self.hidden, dim)
        # silu has no bounds, where tanh cuts the tails of μ and σ.
        mean = MLP(mean_key, widths, jax.nn.silu).with_output(1.0, 0.0)
        log_var = MLP(scale_key, widths, jax.nn.silu).with_output(0.1, 0.0 if is_gaussian else -2.0)
        conditional = DiagonalGaussian(mean, log_var, min_log_var=-14.0)
        return SemiImplicit(GaussianMixing(mixing_dim), conditional, Triangular.identity(dim))

    def mixing_draws(self, dim: int) -> int:
        """K: fewer where each costs more, and one z of many matters less."""
        return self.num_mixing or (256 if dim <= 20 else 128)

    def objective(self, dim: int) -> Jeffreys:
        """Both divergences on the family's own draws: SIVI's bound alone leaves tails and narrow places out."""
        return Jeffreys(self._bound(dim), Wake(self.num_samples, self.mixing_draws(dim), scale=1.75), share=0.75)

    def first_objective(self, points: Float[Array, "n d"]) -> Jeffreys:
        """Jeffreys' divergence on points. Maximum likelihood alone leaves a few draws anywhere: they cost nothing."""
        dim = points.shape[1]
        return Jeffreys(self._bound(dim), MaximumLikelihood(points, self.num_samples, 2 * self.mixing_draws(dim)))

    def _bound(self, dim: int) -> SIVI:
        return SIVI(-(-self.num_samples // 2), self.mixing_draws(dim))

    def fewest_steps(self, is_gaussian: bool) -> int:
        """Before the bound may count as settled: fewer where one Gaussian was nearly enough."""
        return 1_500 if is_gaussian else 2_000

    def num_starts(self, dim: int) -> int:
        """Fewer where each costs more."""
        return 12 if dim <= 20 else 6

    def scans(self, dim: int) -> bool:
        """Whether to look for modes far from those found: Gaussians there cost much in many dimensions."""
        return dim <= 50


def optimizer(rate: Scalar) -> optax.GradientTransformation:
    """Adam on gradients cut at a norm that only outliers reach."""
    return optax.chain(optax.clip_by_global_norm(jnp.asarray(10.0)), optax.adam(rate))
