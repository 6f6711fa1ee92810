"""A conditional RealNVP: an invertible map u ↦ z for each x, with a known Jacobian.

Written here, in sixty lines: FlowJAX would bring a second way of marking what is trained, and
Distrax would bring TensorFlow Probability.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..families import MLP, log_normal

_MOST = 3.0

Point = Float[Array, " k"]
Context = Float[Array, " d"]


class Coupling(eqx.Module):
    r"""z ↦ z ⊙ e^s + t, where s and t depend on x and on every other coordinate of z.

    Those coordinates stay as they are. |s| < 3 keeps a bad step of the optimizer harmless.
    """

    network: MLP
    kept: int = eqx.field(static=True)

    def __call__(self, z: Point, x: Context) -> tuple[Point, Scalar]:
        """The map, and the log determinant of its Jacobian."""
        scale, shift = self._scale_and_shift(z, x)
        return z * jnp.exp(scale) + shift, jnp.sum(scale)

    def inverse(self, z: Point, x: Context) -> tuple[Point, Scalar]:
        """The inverse map, and the log determinant of its Jacobian."""
        scale, shift = self._scale_and_shift(z, x)
        return (z - shift) * jnp.exp(-scale), -jnp.sum(scale)

    def _scale_and_shift(self, z: Point, x: Context) -> tuple[Point, Point]:
        moves = jnp.arange(len(z)) % 2 != self.kept
        found = self.network(jnp.concatenate([jnp.where(moves, 0, z), x]))
        scale, shift = (jnp.where(moves, part, 0) for part in jnp.split(found, 2))
        return _MOST * jnp.tanh(scale / _MOST), shift


class RealNVP(eqx.Module):
    r"""τ(z|x): z = f_x(u) with u ~ N(0, I), by coupling layers. It starts as N(0, I) for every x.

    **Arguments:**

    - `dim`, `context_dim`: the dimensions of z and of x.
    - `num_layers`: the number of coupling layers. Even and odd coordinates move in turns.
    - `hidden`: the hidden widths of the network of each layer.

    Reference: Dinh, Sohl-Dickstein and Bengio, Density Estimation Using Real NVP, ICLR 2017.
    """

    layers: tuple[Coupling, ...]

    def __init__(
        self,
        key: PRNGKeyArray,
        dim: int,
        context_dim: int,
        num_layers: int,
        hidden: tuple[int, ...],
    ):
        widths = (dim + context_dim, *hidden, 2 * dim)
        keys = jax.random.split(key, num_layers if dim else 0)  # nothing to move without z
        networks = (MLP(k, widths, jax.nn.silu) for k in keys)
        self.layers = tuple(Coupling(n.with_output(0, 0), i % 2) for i, n in enumerate(networks))

    def sample_and_log_prob(self, u: Point, x: Context) -> tuple[Point, Scalar]:
        """z = f_x(u) and log τ(z|x)."""
        z, log_prob = u, log_normal(u, jnp.zeros_like(u))
        for layer in self.layers:
            z, log_det = layer(z, x)
            log_prob = log_prob - log_det
        return z, log_prob

    def log_prob(self, z: Point, x: Context) -> Scalar:
        """log τ(z|x)."""
        total = jnp.zeros((), z.dtype)
        for layer in reversed(self.layers):
            z, log_det = layer.inverse(z, x)
            total = total + log_det
        return total + log_normal(z, jnp.zeros_like(z))
