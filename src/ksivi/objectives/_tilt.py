"""Tilted kernels: where, and in which directions, KSIVI compares the scores of q and p."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.checks import as_fraction, as_positive


class Tilt(eqx.Module):
    r"""The matrices m(x) of a tilted kernel, which is m(x)ᵀ m(x′) k(x, x′):

        m(x) = (1 + ‖x‖²/d)^(g/2) r^(−c/2) (I + (r^(−a/2) − 1) ŝ ŝᵀ)

    with s = s_p(x), its direction ŝ = s/‖s‖, and r = 1 + ‖s‖²/d.

    The discrepancy is still 0 for q = p only, but it weighs the differences of the scores otherwise.
    Where p is narrow and curved, draws beside it have large scores across it. In the plain
    discrepancy these outweigh what happens along it, so the sampler stays in the middle. The tilt is
    made for coordinates in which p has about mean 0 and covariance I.

    **Arguments:**

    - `across`: a, between 0 and 1. The difference counts less in the direction of s_p, which is the
        direction across a narrow part.
    - `steep`: c, between 0 and 1. Points where p is steep count less in all directions.
    - `growth`: g. Points far out count more. The tails of the family must be light enough.
    - `horizon`: the number of steps in which a, c and g fall to 0, linearly. Default: they do not.

    A factor whose power is None, the default, is 1.

    ```python
    tilt = ksivi.objectives.Tilt(across=0.9, growth=1.0)
    objective = ksivi.KSIVI(ksivi.kernels.IMQ(), "mixture", tilt=tilt)
    ```
    """

    across: Array | None
    steep: Array | None
    growth: Array | None
    horizon: Array | None

    def __init__(
        self,
        *,
        across: float | Array | None = None,
        steep: float | Array | None = None,
        growth: float | Array | None = None,
        horizon: float | Array | None = None,
    ):
        self.across = None if across is None else as_fraction(across, "across")
        self.steep = None if steep is None else as_fraction(steep, "steep")
        self.growth = None if growth is None else as_positive(growth, "growth")
        self.horizon = None if horizon is None else as_positive(horizon, "horizon")

    def at(self, step: Int[Array, ""]) -> "Tilt":
        """The tilt at a step."""
        if self.horizon is None:
            return self
        left = jnp.maximum(0, 1 - step / self.horizon)
        powers = lambda tilt: (tilt.across, tilt.steep, tilt.growth)  # noqa: E731
        return eqx.tree_at(powers, self, jax.tree.map(lambda power: left * power, powers(self)))

    def __call__(
        self, x: Float[Array, "*n d"], score: Float[Array, "*n d"], f: Float[Array, "*n d"]
    ) -> Float[Array, "*n d"]:
        """m(x) f, for every row."""
        steepness = jnp.mean(score**2, axis=-1, keepdims=True)  # r − 1
        if self.across is not None:
            f = f + score * _across(self.across, steepness, jnp.mean(score * f, -1, keepdims=True))
        if self.steep is not None:
            f = f * (1 + steepness) ** (-self.steep / 2)
        if self.growth is not None:
            f = f * (1 + jnp.mean(x**2, axis=-1, keepdims=True)) ** (self.growth / 2)
        return f


def _across(power: Array, steepness: Array, along_score: Array) -> Array:
    """(r^(−a/2) − 1) ⟨s, f⟩/‖s‖², also where s is 0."""
    nearly_none = jnp.finfo(steepness.dtype).eps ** 2
    change = jnp.expm1(-power / 2 * jnp.log1p(steepness))
    return change * along_score / (steepness + nearly_none)
