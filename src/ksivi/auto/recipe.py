"""What `fit` does, as a value: sizes and rates, each with the rule that chose it."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._checks import as_count
from ..families import MLP, DiagonalGaussian, GaussianMixing, SemiImplicit, Triangular
from ..objectives import SIVI, Jeffreys, MaximumLikelihood


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of `fit`: one set for all targets.

    **Attributes:**

    - `num_runs`: independent runs, trained at once, of which the best is kept and all are compared.
    - `num_samples`, `num_mixing`: N and K of SIVI's bound.
    - `hidden`: widths of the networks for μ(z) and σ(z).
    - `learning_rate`: until the loss has settled; a cosine to 0 follows.
    - `num_pretraining`: steps of the first stage, on Jeffreys' divergence with rough draws for points.
    - `num_polishing`, `polishing_rate`: steps and first learning rate of the last stage, on Jeffreys' divergence with
        the family's own draws for points.
    - `max_steps`: at most, cooling included, polishing not.
    - `chunk`: steps between looks.
    """

    num_runs: int = 2
    num_samples: int = 64
    num_mixing: int = 256
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 3e-3
    num_pretraining: int = 1_500
    num_polishing: int = 1_000
    polishing_rate: float = 1e-3
    max_steps: int = 7_000
    chunk: int = 500

    def __post_init__(self):
        for name in ("num_runs", "num_samples", "num_mixing", "max_steps", "chunk"):
            as_count(getattr(self, name), name)
        for name in ("num_pretraining", "num_polishing"):
            as_count(getattr(self, name), name, minimum=0)

    def mixing_dim(self, dim: int) -> int:
        """Of z: enough for as many independent shapes; near-Gaussian directions need none of them."""
        return min(max(dim, 4), 10)

    def family(self, key: PRNGKeyArray, dim: int) -> SemiImplicit:
        """Near N(0, I) in whitened coordinates, with a μ(z) that already spreads, and an affine layer."""
        mean_key, scale_key = jax.random.split(key)
        mixing_dim = self.mixing_dim(dim)
        widths = (mixing_dim, *self.hidden, dim)
        # silu has no bounds, where tanh cuts the tails of μ and σ.
        mean = MLP(mean_key, widths, jax.nn.silu).with_output(1.0, 0.0)
        log_var = MLP(scale_key, widths, jax.nn.silu).with_output(0.1, 0.0)
        conditional = DiagonalGaussian(mean, log_var, min_log_var=-14.0)
        return SemiImplicit(GaussianMixing(mixing_dim), conditional, Triangular.identity(dim))

    def objective(self) -> SIVI:
        return SIVI(self.num_samples, self.num_mixing)

    def fewest_steps(self, is_gaussian: bool) -> int:
        """Before the loss may count as settled: fewer where one Gaussian was nearly enough."""
        return 1_000 if is_gaussian else 2_000

    def polishes(self, dim: int) -> bool:
        """Maximum likelihood needs some z near every point: in many dimensions there are none."""
        return dim <= 6 and self.num_polishing > 0

    def with_points(self, points: Float[Array, "n d"]) -> Jeffreys:
        """Jeffreys' divergence. Maximum likelihood alone leaves a few draws anywhere: they cost it nothing."""
        return Jeffreys(self.objective(), MaximumLikelihood(points, self.num_samples, 2 * self.num_mixing))

    def num_starts(self, dim: int) -> int:
        """Fewer where each costs more."""
        return 12 if dim <= 20 else 6


def optimizer(rate: Scalar) -> optax.GradientTransformation:
    """Adam on gradients cut at a norm that only outliers reach."""
    return optax.chain(optax.clip_by_global_norm(jnp.asarray(10.0)), optax.adam(rate))
