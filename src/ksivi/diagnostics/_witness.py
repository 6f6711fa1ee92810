"""The witness function of KSD: where a fit is wrong, and in which direction."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_samples, as_single_key
from .._core.compile import jit
from .._core.numerics import full_precision
from ..kernels import IMQ, AbstractKernel, as_kernel
from ..results import Posterior
from ..targets import Affine, Target
from ._checks import require_fit


class Witness(eqx.Module):
    """The witness f*.

    Call it with points, one per row, to get a direction at each, in the target's coordinates.

    **Attributes:**

    - `kernel`: the kernel, with a fixed bandwidth.
    - `draws`, `gaps`: y and s_p(y) − s_{q(·|z)}(y), in the coordinates of the training.
    - `coordinates`: the coordinates of the training; None if they are the target's.
    """

    kernel: AbstractKernel
    draws: Float[Array, "m d"]
    gaps: Float[Array, "m d"]
    coordinates: Affine | None

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        gram = _gram(self, as_samples(jnp.asarray(x), "x", self.draws.shape[1]))
        return self._back(_matmul(gram, self.gaps) / len(self.draws))

    def shift(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        r"""How far draws near x should move, to first order.

            C Σⱼ k(x, yⱼ) gⱼ / Σⱼ k(x, yⱼ),   C the draws' covariance

        This is the witness in the units of x. For two Gaussians with the same covariance it is the
        difference of their means.
        """
        gram = _gram(self, as_samples(jnp.asarray(x), "x", self.draws.shape[1]))
        centred = self.draws - jnp.mean(self.draws, axis=0, keepdims=True)
        moves = _matmul(self.gaps, _matmul(centred.T, centred) / len(centred))
        return self._back(_matmul(gram, moves) / jnp.sum(gram, axis=1, keepdims=True))

    def _back(self, directions: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return (
            directions
            if self.coordinates is None
            else jax.vmap(self.coordinates.linear)(directions)
        )


def witness(
    key: PRNGKeyArray,
    target: Target,
    posterior: Posterior,
    *,
    num_samples: int = 1_000,
    kernel: AbstractKernel | None = None,
) -> Witness:
    r"""The witness function of KSD, by the paper's Theorem 3.1.

        f*(x) = E[k(x, y) (s_p(y) − s_{q(·|z)}(y))],   y and z drawn from the posterior

    It is 0 everywhere if q = p. Otherwise it points in the direction in which draws should move.

    **Arguments:**

    - `posterior`: a trained sampler. Stored draws have no conditional score.
    - `num_samples`: the number of draws in the expectation.
    - `kernel`: default IMQ with the median bandwidth of those draws, in the coordinates of the
        training.

    **Returns:** a `Witness`. Call it with points.

    ```python
    f = ksivi.diagnostics.witness(jax.random.key(3), target, fit.posterior, num_samples=200)
    f(fit.posterior.sample(jax.random.key(4), 5))
    ```
    """
    require_fit(target, posterior, "witness")
    if not posterior.family.has_density:
        raise ValueError(
            "posterior must be a trained sampler; stored draws have no conditional score"
        )
    family: Any = posterior.family
    y, conditional = family.transport(
        family.noise(as_single_key(key), as_count(num_samples, "num_samples", minimum=2))
    )
    fixed = as_kernel(kernel, IMQ()).resolve(y, y, 1)
    gaps = jax.vmap(posterior.view(target).score)(y) - conditional
    return Witness(fixed, y, gaps, posterior.coordinates)


@jit
def _gram(witness: Witness, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
    u = x if witness.coordinates is None else jax.vmap(witness.coordinates.inverse)(x)
    return witness.kernel.gram(u, witness.draws)


def _matmul(a: Float[Array, "n m"], b: Float[Array, "m d"]) -> Float[Array, "n d"]:
    with full_precision():
        return a @ b
