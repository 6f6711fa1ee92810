"""Supports of parameters, and the maps onto them from the real line."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_floats
from .._core.registry import register


class _Map(NamedTuple):
    """y(u), u(y), and the terms whose sum is log |det ∂y/∂u|."""

    forward: Callable[..., Array]
    inverse: Callable[..., Array]
    log_slope: Callable[..., Array]


_MAPS = {
    "real": _Map(lambda u: u, lambda y: y, jnp.zeros_like),
    "greater_than": _Map(
        lambda u, lower: lower + jnp.exp(u), lambda y, lower: jnp.log(y - lower), lambda u, lower: u
    ),
    "less_than": _Map(
        lambda u, upper: upper - jnp.exp(u), lambda y, upper: jnp.log(upper - y), lambda u, upper: u
    ),
    "interval": _Map(
        lambda u, lower, upper: lower + (upper - lower) * jax.nn.sigmoid(u),
        lambda y, lower, upper: jnp.log(y - lower) - jnp.log(upper - y),
        lambda u, lower, upper: (
            jnp.log(upper - lower) + jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u)
        ),
    ),
}


_ON_HOST: dict[str, Callable[..., np.ndarray]] = {
    "real": lambda u: u,
    "greater_than": lambda u, lower: lower + np.exp(u),
    "less_than": lambda u, upper: upper - np.exp(u),
    "interval": lambda u, lower, upper: lower + (upper - lower) * (0.5 + 0.5 * np.tanh(0.5 * u)),
}
"""The elementwise maps in NumPy, which compiles nothing. A sigmoid by tanh does not overflow."""


def _softmax(u: Float[Array, "... k"]) -> Float[Array, "... 1+k"]:
    """PyMC's map to a simplex: softmax after a last coordinate that makes the sum 0."""
    last = -jnp.sum(u, axis=-1, keepdims=True)
    return jax.nn.softmax(jnp.concatenate([u, last], axis=-1), axis=-1)


def _inverse_softmax(y: Float[Array, "... 1+k"]) -> Float[Array, "... k"]:
    logs = jnp.log(y)
    return (logs - jnp.mean(logs, axis=-1, keepdims=True))[..., :-1]


def _softmax_slope(u: Float[Array, "... k"]) -> Float[Array, "..."]:
    return jnp.log(u.shape[-1] + 1.0) + jnp.sum(jnp.log(_softmax(u)), axis=-1)


_MAPS["softmax_simplex"] = _Map(_softmax, _inverse_softmax, _softmax_slope)


@register
class Support(eqx.Module):
    """A set of parameter values, and the map onto it.

    | kind         | values        | map                          |
    |--------------|---------------|------------------------------|
    | real         | all           | u                            |
    | greater_than | above a bound | bound + eᵘ                   |
    | less_than    | below a bound | bound − eᵘ                   |
    | interval     | between two   | lower + (upper − lower)/(1 + e⁻ᵘ) |
    | softmax_simplex | shares     | softmax(u, −Σu), which is PyMC's |

    Every other kind is a NumPyro constraint without bounds, such as "simplex", "ordered_vector" or
    "corr_cholesky", with NumPyro's map.
    """

    kind: str = eqx.field(static=True)
    bounds: tuple[Array, ...] = ()

    def __call__(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """The value of an unconstrained u."""
        if self.kind in _MAPS:
            return _MAPS[self.kind].forward(u, *self._bounds(u))
        return _numpyro_map(self.kind)(u)

    @property
    def is_elementwise(self) -> bool:
        """Whether each number of a value is computed from one unconstrained number."""
        return self.kind in _ON_HOST

    def on_host(self, u: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n ..."]:
        """The values of n unconstrained u. Elementwise supports compute them in NumPy."""
        if self.kind in _ON_HOST:
            return _ON_HOST[self.kind](u, *(np.asarray(bound, u.dtype) for bound in self.bounds))
        values = jax.vmap(self)(jnp.asarray(u, jnp.result_type(float)))
        return np.asarray(values, np.float64)

    def inverse(self, value: Float[Array, "..."]) -> Float[Array, "..."]:
        """The unconstrained u of a value. It is not finite if the value is outside the support."""
        if self.kind in _MAPS:
            return _MAPS[self.kind].inverse(value, *self._bounds(value))
        return _numpyro_map(self.kind).inv(value)

    def log_det(self, u: Float[Array, "..."]) -> Scalar:
        """log |det ∂value/∂u|."""
        if self.kind in _MAPS:
            return jnp.sum(_MAPS[self.kind].log_slope(u, *self._bounds(u)))
        to = _numpyro_map(self.kind)
        return jnp.sum(to.log_abs_det_jacobian(u, to(u)))

    @property
    def least_ndim(self) -> int:
        """The least number of axes of one value."""
        if self.kind in _MAPS:
            return int(self.kind == "softmax_simplex")
        return 2 if "chol" in self.kind or "matrix" in self.kind else 1

    def __str__(self) -> str:
        """What a value must be, as in "must be greater than 0.0"."""
        words = _WORDS.get(self.kind, f"a {self.kind.replace('_', ' ')}")
        return f"{words} {' and '.join(str(bound) for bound in self.bounds)}".strip()

    def _bounds(self, like: Float[Array, "..."]) -> list[Array]:
        return [bound.astype(like.dtype) for bound in self.bounds]


_WORDS = {
    "real": "real",
    "greater_than": "greater than",
    "less_than": "less than",
    "interval": "between",
    "simplex": "a simplex, positive numbers that sum to 1",
    "softmax_simplex": "a simplex, positive numbers that sum to 1",
    "ordered_vector": "a vector of increasing numbers",
    "corr_cholesky": "the Cholesky factor of a correlation matrix",
}


def real() -> Support:
    """All real numbers."""
    return Support("real")


def positive() -> Support:
    """Numbers above 0."""
    return greater_than(0.0)


def greater_than(lower: float | Array) -> Support:
    """Numbers above a bound."""
    return Support("greater_than", (_as_bound(lower),))


def less_than(upper: float | Array) -> Support:
    """Numbers below a bound."""
    return Support("less_than", (_as_bound(upper),))


def interval(lower: float | Array, upper: float | Array) -> Support:
    """Numbers between two bounds."""
    low, high = _as_bound(lower), _as_bound(upper)
    if not bool(jnp.all(low < high)):
        raise ValueError(f"lower must be below upper, got {lower} and {upper}")
    return Support("interval", (low, high))


def within(lower: float | Array | None, upper: float | Array | None) -> Support:
    """Numbers above `lower` and below `upper`; None means no bound."""
    if lower is not None and upper is not None:
        return interval(lower, upper)
    if lower is not None:
        return greater_than(lower)
    return Support("real") if upper is None else less_than(upper)


def simplex() -> Support:
    """Vectors of positive numbers that sum to 1, along the last axis. Needs NumPyro."""
    return Support("simplex")


def ordered() -> Support:
    """Vectors of increasing numbers, along the last axis. Needs NumPyro."""
    return Support("ordered_vector")


def corr_cholesky() -> Support:
    """Cholesky factors of correlation matrices. Needs NumPyro."""
    return Support("corr_cholesky")


def _as_bound(bound: float | Array) -> Array:
    found = as_floats(bound, "bounds")
    if not bool(jnp.isfinite(found).all()):
        raise ValueError(
            f"bounds must be finite, got {bound}; for no bound on one side use greater_than or "
            "less_than, and for none at all real"
        )
    return found


def _numpyro_map(kind: str) -> Any:
    # NumPyro's densities are in the coordinates of its own maps.
    try:
        from numpyro.distributions import biject_to, constraints
    except ImportError as error:
        raise ImportError(
            f"a parameter on the support {kind!r} needs NumPyro: pip install 'ksivi[numpyro]'"
        ) from error
    return biject_to(getattr(constraints, kind))
