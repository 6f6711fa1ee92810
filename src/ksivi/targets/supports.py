"""Where a parameter lives, and the map to there from the real line."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _archive

_MAPS: dict[str, Callable[..., Array]] = {
    "real": lambda u: u,
    "greater_than": lambda u, lower: lower + jnp.exp(u),
    "less_than": lambda u, upper: upper - jnp.exp(u),
    "interval": lambda u, lower, upper: lower + (upper - lower) * jax.nn.sigmoid(u),
}


@_archive.register
class Support(eqx.Module):
    """A set of parameter values, and the map onto it.

    | kind         | values        | map                          |
    |--------------|---------------|------------------------------|
    | real         | all           | u                            |
    | greater_than | above a bound | bound + eᵘ                   |
    | less_than    | below a bound | bound − eᵘ                   |
    | interval     | between two   | lower + (upper − lower)/(1 + e⁻ᵘ) |

    Other kinds are those of NumPyro that have no bounds, such as "simplex", "ordered_vector" or "corr_cholesky", with
    its maps.
    """

    kind: str = eqx.field(static=True)
    bounds: tuple[Array, ...] = ()

    def __call__(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """The value of an unconstrained u."""
        if self.kind in _MAPS:
            return _MAPS[self.kind](u, *self.bounds)
        return _numpyro_map(self.kind)(u)


def _numpyro_map(kind: str) -> Any:
    # Simplices, orders and correlations are mapped as NumPyro does: its densities are in those coordinates.
    try:
        from numpyro.distributions import biject_to, constraints
    except ImportError as error:
        raise ImportError(f"a parameter on the support {kind!r} needs NumPyro: pip install 'ksivi[numpyro]'") from error
    return biject_to(getattr(constraints, kind))
