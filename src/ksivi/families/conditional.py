"""The conditional layer q(x|z)."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Scalar

from .. import _archive
from .frozen import Frozen


@_archive.register
class DiagonalGaussian(eqx.Module):
    r"""q(x|z) = N(μ(z), diag σ²(z)), drawn as x = μ(z) + σ(z) ⊙ ξ with ξ ~ N(0, I).

    **Arguments:**

    - `mean`: z ↦ μ(z), such as an `MLP`.
    - `log_var`: z ↦ log σ²(z); a `Constant` is the paper's global σ.
    - `min_log_var`: a floor on log σ², with zero gradient below it.
    """

    mean: Callable[[Float[Array, " k"]], Float[Array, " d"]]
    log_var: Callable[[Float[Array, " k"]], Float[Array, " d"]]
    min_log_var: Frozen

    def __init__(self, mean: Callable, log_var: Callable, min_log_var: float | Array = -20.0):
        self.mean = mean
        self.log_var = log_var
        self.min_log_var = Frozen(jnp.asarray(min_log_var, jnp.result_type(float)))

    def parameters(self, z: Float[Array, " k"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """μ(z) and log σ²(z), floored."""
        raw = self.log_var(z)
        floor = lax.stop_gradient(self.min_log_var.value).astype(raw.dtype)
        return self.mean(z), jnp.where(raw > floor, raw, floor)

    def log_prob(self, x: Float[Array, " d"], z: Float[Array, " k"]) -> Scalar:
        """log q(x|z)."""
        mean, log_var = self.parameters(z)
        residual = (x - mean) * jnp.exp(-0.5 * log_var)
        return -0.5 * jnp.sum(residual**2 + log_var + jnp.log(2 * jnp.pi))


def place(
    mean: Float[Array, " d"], log_var: Float[Array, " d"], xi: Float[Array, " d"]
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """x = μ + σ ⊙ ξ and the conditional score ∇ₓ log q(x|z) = −ξ / σ there."""
    return mean + jnp.exp(0.5 * log_var) * xi, -jnp.exp(-0.5 * log_var) * xi
