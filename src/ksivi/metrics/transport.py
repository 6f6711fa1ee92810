"""Wasserstein distances between samples, by POT."""

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_count, as_numpy_samples, as_single_key

_MOST_POINTS = 5_000
_PROJECTIONS_AT_ONCE = 50


def sliced_wasserstein(
    key: PRNGKeyArray, x: Float[Array, "n d"], y: Float[Array, "m d"], *, p: int = 2, num_projections: int = 500
) -> float:
    r"""(mean over random directions θ of W_pᵖ(⟨θ, x⟩, ⟨θ, y⟩))^(1/p).

    Two exact samples of one distribution are not at distance 0: print their distance, the floor, beside it.

    **Arguments:**

    - `key`: draws the directions.
    - `x`, `y`: two samples.

    ```python
    x, y = jax.random.normal(jax.random.key(0), (2, 1_000, 3))
    ksivi.metrics.sliced_wasserstein(jax.random.key(1), x, y)
    ```
    """
    ot, seed = _pot(), _seed(key)
    a, b = _pair(x, y)
    as_count(num_projections, "num_projections")
    as_count(p, "p")
    directions = ot.sliced.get_random_projections(a.shape[1], num_projections, seed=seed)
    parts = np.array_split(directions, -(-num_projections // _PROJECTIONS_AT_ONCE), axis=1)
    powers = [
        part.shape[1] * ot.sliced_wasserstein_distance(a, b, p=p, projections=part, n_projections=part.shape[1]) ** p
        for part in parts
    ]
    return float((sum(powers) / num_projections) ** (1 / p))


def wasserstein(x: Float[Array, "n d"], y: Float[Array, "m d"], *, p: int = 2) -> float:
    r"""The exact Wasserstein distance W_p (Euclidean ground distance) between two samples.

    Refused above 5,000 points, where its matrix of costs and its cubic time stop being reasonable.

    ```python
    x, y = jax.random.normal(jax.random.key(0), (2, 200, 3))
    ksivi.metrics.wasserstein(x, y)
    ```
    """
    ot = _pot()
    a, b = _pair(x, y)
    as_count(p, "p")
    if max(len(a), len(b)) > _MOST_POINTS:
        raise ValueError(
            f"x and y must hold at most {_MOST_POINTS:,} points, got {len(a):,} and {len(b):,}: exact transport takes "
            "memory quadratic and time cubic in them; use sliced_wasserstein, or fewer points"
        )
    cost = ot.dist(a, b, metric="euclidean") ** p
    return float(ot.emd2([], [], cost, numItermax=10_000_000) ** (1 / p))


def _pair(x, y) -> tuple[np.ndarray, np.ndarray]:
    x = as_numpy_samples(x, "x")
    y = as_numpy_samples(y, "y", x.shape[1])
    return x.astype(np.float64), y.astype(np.float64)


def _seed(key: PRNGKeyArray) -> int:
    return int(jax.random.randint(as_single_key(key), (), 0, 2**31 - 1))


def _pot():
    try:
        import ot
    except ImportError as error:
        raise ImportError("Wasserstein distances need POT: pip install 'ksivi[metrics]'") from error
    return ot
