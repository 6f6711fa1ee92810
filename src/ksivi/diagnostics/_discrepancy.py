"""KSD² of a posterior's draws, with a bootstrap band and a p-value."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_single_key
from .._core.compile import one_shot
from ..kernels import IMQ, AbstractKernel, as_kernel, stein_gram
from ..results import Discrepancy, Posterior
from ..targets import Target
from ._checks import require_fit

_BOOTSTRAPS = 500
_SHARES = (0.05, 0.95)


def discrepancy(
    key: PRNGKeyArray,
    target: Target,
    posterior: Posterior,
    *,
    num_samples: int = 1_000,
    kernel: AbstractKernel | None = None,
) -> Discrepancy:
    r"""KSD² as a U-statistic of new draws, in the coordinates of the training.

    The band comes from resampled draws. The p-value is the share of bootstrap values
    Σ_{i≠j} (wᵢ − 1)(wⱼ − 1) uᵢⱼ / n(n−1), w multinomial, that are at least the estimate.

    **Arguments:**

    - `num_samples`: the number of draws.
    - `kernel`: default IMQ with the median bandwidth.

    ```python
    print(ksivi.diagnostics.discrepancy(jax.random.key(3), target, fit.posterior, num_samples=200))
    ```

    Reference: Liu, Lee and Jordan, A kernelized Stein discrepancy for goodness-of-fit tests, ICML
    2016.
    """
    require_fit(target, posterior, "discrepancy")
    draw_key, bootstrap_key = jax.random.split(as_single_key(key))
    x = posterior.sample(draw_key, as_count(num_samples, "num_samples", minimum=2))
    kernel = as_kernel(kernel, IMQ())
    estimate, band, p_value = _bootstrap(bootstrap_key, posterior.view(target), x, kernel)
    return Discrepancy(
        float(estimate), float(band[0]), float(band[1]), float(p_value), type(kernel).__name__
    )


@one_shot
def _bootstrap(key: PRNGKeyArray, target: Target, x: Float[Array, "n d"], kernel: AbstractKernel):
    n = len(x)
    if target.coordinates is not None:
        x = jax.vmap(target.coordinates.inverse)(x)
    kernel, score = kernel.resolve(x, x, 1), jax.vmap(target.score)(x)
    gram = stein_gram(kernel, x, score, x, score) * (1 - jnp.eye(n, dtype=x.dtype)) / (n * (n - 1))
    chosen = jax.random.randint(key, (_BOOTSTRAPS, n), 0, n)
    counts = jax.vmap(lambda rows: jnp.zeros(n, x.dtype).at[rows].add(1))(chosen)
    estimates = jnp.sum((counts @ gram) * counts, axis=1)
    null = jnp.sum(((counts - 1) @ gram) * (counts - 1), axis=1)
    estimate = jnp.sum(gram)
    return estimate, jnp.quantile(estimates, jnp.asarray(_SHARES)), jnp.mean(null >= estimate)
