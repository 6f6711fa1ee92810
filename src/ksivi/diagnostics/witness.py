"""The witness of KSD: where a fit is wrong, and in which direction."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_count, as_samples, as_single_key
from .._compile import jit
from .._numerics import full_precision
from ..families import SemiImplicit
from ..kernels import IMQ, AbstractKernel
from ..posterior import Posterior
from ..targets import Target

Witness = Callable[[Float[Array, "n d"]], Float[Array, "n d"]]


def witness(
    key: PRNGKeyArray,
    target: Target,
    posterior: Posterior,
    *,
    num_samples: int = 1_000,
    kernel: AbstractKernel | None = None,
) -> Witness:
    r"""f*(x) = E[k(x, y) (s_p(y) − s_{q(·|z)}(y))], y and z of the posterior: Theorem 3.1 of the paper.

    It is 0 everywhere for q = p, and points where draws should move: towards mass that q lacks.

    **Arguments:**

    - `posterior`: a trained sampler; stored draws have no conditional score.
    - `num_samples`: draws that the expectation is taken over.
    - `kernel`: IMQ with the median bandwidth of those draws unless given, in the coordinates of the training.

    **Returns:** a function of points, one a row, in the target's own coordinates, to directions there.

    ```python
    f = ksivi.diagnostics.witness(jax.random.key(3), target, fit.posterior, num_samples=200)
    f(fit.posterior.sample(jax.random.key(4), 5))
    ```
    """
    if not isinstance(posterior.family, SemiImplicit):
        raise ValueError("posterior must be a trained sampler; stored draws have no conditional score")
    family, coordinates, dim = posterior.family, posterior.coordinates, target.dim
    y, conditional = family.transport(family.noise(as_single_key(key), as_count(num_samples, "num_samples", minimum=2)))
    fixed = (IMQ() if kernel is None else kernel).resolve(y, y, 1)
    gap = jax.vmap(posterior.view(target).score)(y) - conditional

    @jit
    def direction(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        u = x if coordinates is None else jax.vmap(coordinates.inverse)(x)
        with full_precision():
            f = fixed.gram(u, y) @ gap / len(y)
        return f if coordinates is None else jax.vmap(coordinates.linear)(f)

    return lambda x: direction(as_samples(jnp.asarray(x), "x", dim))
