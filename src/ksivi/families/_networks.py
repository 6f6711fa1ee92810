"""Maps z ↦ ℝᵈ for the mean and the log variance of the conditional."""

import itertools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key, attributing_errors_to, require_callable
from .._core.numerics import full_precision, product
from .._core.registry import register


@register
class Constant(eqx.Module):
    """A map that ignores z: the paper's global σ, and both parts of a location-scale family."""

    value: Float[Array, " d"]

    def __call__(self, z: Float[Array, " k"]) -> Float[Array, " d"]:
        return self.value


@register
class MLP(eqx.Module):
    """A multi-layer perceptron. Weights and biases start uniform on ±1/√fan-in, as in PyTorch.

    Weights are stored as (in, out), so that a layer on a batch of z is one plain matrix product.

    **Arguments:**

    - `widths`: the layer widths, from the input to the output.
    - `activation`: applied elementwise after every layer except the last.
    """

    weights: tuple[Float[Array, "i o"], ...]
    biases: tuple[Float[Array, " o"], ...]
    activation: Callable = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, widths: Sequence[int], activation: Callable = jax.nn.relu
    ):
        require_callable(activation, "activation")
        with attributing_errors_to("activation"):
            kept = jax.eval_shape(activation, jnp.zeros(3))
        if getattr(kept, "shape", None) != (3,):
            raise ValueError(
                f"activation must keep the shape of its input, got {kept} for shape (3,)"
            )
        if isinstance(widths, int) or len(widths) < 2:
            raise ValueError(f"widths must be a list of at least two layer widths, got {widths!r}")
        widths = [as_count(width, "widths") for width in widths]
        keys = jax.random.split(as_single_key(key), (len(widths) - 1, 2))
        shapes = list(itertools.pairwise(widths))
        bounds = [fan_in**-0.5 for fan_in, _ in shapes]
        self.weights = tuple(
            _uniform(k, s, b) for k, s, b in zip(keys[:, 0], shapes, bounds, strict=True)
        )
        self.biases = tuple(
            _uniform(k, s[1:], b) for k, s, b in zip(keys[:, 1], shapes, bounds, strict=True)
        )
        self.activation = activation

    def __call__(self, z: Float[Array, " k"]) -> Float[Array, " d"]:
        *hidden, (last, offset) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            z = self.activation(product(z, weight) + bias)
        return product(z, last) + offset

    def with_output(self, scale: float | Array, offset: float | Array) -> "MLP":
        """The same network with its last weights scaled and its last bias replaced."""
        bias = jnp.broadcast_to(jnp.asarray(offset, self.biases[-1].dtype), self.biases[-1].shape)
        outputs = lambda net: (net.weights[-1], net.biases[-1])  # noqa: E731
        return eqx.tree_at(outputs, self, (scale * self.weights[-1], bias))


@register
class PerMode(eqx.Module):
    """(e_k, u) ↦ b_k + A_k f(e_k, u): a network with an affine map per mode, for `ModeMixing`.

    **Arguments:**

    - `net`: f.
    - `offsets`: b, one row per mode.
    - `matrices`: A, one matrix per mode. None stands for the identity.
    """

    net: Callable[[Float[Array, " k"]], Float[Array, " d"]]
    offsets: Float[Array, "m d"]
    matrices: Float[Array, "m d d"] | None = None

    def __call__(self, z: Float[Array, " k"]) -> Float[Array, " d"]:
        mode, value = z[: len(self.offsets)], self.net(z)
        values = self.offsets + value[None]
        if self.matrices is not None:
            # For all modes: on a batch of z this is one matrix product, and no matrix per z.
            with full_precision():
                values = self.offsets + jnp.einsum("mij,j->mi", self.matrices, value)
        return product(mode, values)


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...], bound: float) -> Array:
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
