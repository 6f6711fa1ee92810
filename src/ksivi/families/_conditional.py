"""The conditional layer q(x|z)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_floats
from .._core.registry import register
from ._frozen import Frozen
from ._log_normals import log_normal


@register
class DiagonalGaussian(eqx.Module):
    r"""q(x|z) = N(μ(z), diag σ²(z)), drawn as x = μ(z) + σ(z) ⊙ ξ with ξ ~ N(0, I).

    **Arguments:**

    - `mean`: z ↦ μ(z), such as an `MLP`.
    - `log_var`: z ↦ log σ²(z). A `Constant` gives the paper's global σ.
    - `min_log_var`: the floor on σ, as a bound of log σ²: one number or one per coordinate. Below it
        σ stays at the floor and has no gradient, so a `Constant` that falls below it stays there.
    """

    mean: Callable[[Float[Array, " k"]], Float[Array, " d"]]
    log_var: Callable[[Float[Array, " k"]], Float[Array, " d"]]
    min_log_var: Frozen

    def __init__(self, mean: Callable, log_var: Callable, min_log_var: float | Array = -20.0):
        self.mean = mean
        self.log_var = log_var
        self.min_log_var = Frozen(jnp.asarray(min_log_var, jnp.result_type(float)))

    def parameters(self, z: Float[Array, " k"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """μ(z), and log σ²(z) with its lower bound."""
        raw = self.log_var(z)
        floor = lax.stop_gradient(self.min_log_var.value).astype(raw.dtype)
        return self.mean(z), jnp.where(raw > floor, raw, floor)

    def score(self, x: Float[Array, " d"], z: Float[Array, " k"]) -> Float[Array, " d"]:
        """∇ₓ log q(x|z)."""
        mean, log_var = self.parameters(z)
        return (mean - x) * jnp.exp(-log_var)

    def log_prob(self, x: Float[Array, " d"], z: Float[Array, " k"]) -> Scalar:
        """log q(x|z)."""
        mean, log_var = self.parameters(z)
        return log_normal((x - mean) * jnp.exp(-0.5 * log_var), log_var)


def place(
    mean: Float[Array, " d"], log_var: Float[Array, " d"], xi: Float[Array, " d"]
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """x = μ + σ ⊙ ξ and the conditional score ∇ₓ log q(x|z) = −ξ / σ there."""
    return mean + jnp.exp(0.5 * log_var) * xi, -jnp.exp(-0.5 * log_var) * xi


def log_var_start(log_var: float | Array, floor: float | Array, dim: int) -> Float[Array, " d"]:
    """The first log σ², one number per coordinate. Raises `ValueError` unless it is above its floor."""
    start, floors = as_vector(log_var, "log_var", dim), as_vector(floor, "min_log_var", dim)
    traced = isinstance(start, jax.core.Tracer) or isinstance(floors, jax.core.Tracer)
    if not traced and not bool(jnp.all(jnp.isfinite(start) & (start > floors))):
        raise ValueError(
            f"log_var must be above min_log_var = {floor}, where it has a gradient, got {log_var}"
        )
    return start


def as_vector(value: float | Array, name: str, dim: int) -> Float[Array, " d"]:
    """One number per coordinate, from that or from one number for all."""
    expected = f"one number or have shape ({dim},)"
    found = as_floats(value, name, expected)
    if found.shape not in ((), (dim,)):
        raise ValueError(f"{name} must be {expected}, got shape {found.shape}")
    return jnp.broadcast_to(found, (dim,))
