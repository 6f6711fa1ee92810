"""The Kullback-Leibler divergence between two samples, by nearest neighbours."""

import numpy as np
from jaxtyping import Array, Float

from .._core.checks import as_count, as_numpy_samples


def kl_knn(x: Float[Array, "n d"], y: Float[Array, "m d"], *, k: int = 10) -> float:
    r"""KL(q‖p) from samples x of q and y of p.

        d/n Σᵢ log(νₖ(xᵢ) / ρₖ(xᵢ)) + log(m / (n − 1)),

    where ρₖ is the distance from xᵢ to its k-th nearest neighbour among the other x, and νₖ among
    y. With 1,000 samples in two dimensions the noise is about 0.02. The paper uses 100,000 samples.

    ```python
    x, y = jax.random.normal(jax.random.key(0), (2, 2_000, 2))
    ksivi.metrics.kl_knn(x, y)
    ```

    Reference: Wang, Kulkarni and Verdú, Divergence estimation for multidimensional densities via
    k-nearest-neighbor distances, 2009.
    """
    from scipy.spatial import KDTree

    a = as_numpy_samples(x, "x").astype(np.float64)
    b = as_numpy_samples(y, "y", a.shape[1]).astype(np.float64)
    as_count(k, "k")
    if k > min(len(a) - 1, len(b)):
        raise ValueError(
            f"k must be less than len(x) = {len(x)} and at most len(y) = {len(y)}, got {k}"
        )
    # The nearest neighbour of xᵢ among x is xᵢ itself.
    within = KDTree(a).query(a, k=[k + 1], workers=-1)[0][:, 0]
    across = KDTree(b).query(a, k=[k], workers=-1)[0][:, 0]
    if not (within > 0).all() or not (across > 0).all():
        raise ValueError(
            f"x and y must have at most {k} copies of a point: a neighbour's distance is 0"
        )
    return float(a.shape[1] * np.mean(np.log(across / within)) + np.log(len(b) / (len(a) - 1)))
