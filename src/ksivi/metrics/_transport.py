"""Wasserstein distances between samples, computed by POT."""

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_numpy_samples, as_positive, as_single_key

_MOST_POINTS = 5_000
_MOST_PAIRS = _MOST_POINTS**2
_MOST_PIVOTS = 10_000_000
_PROJECTIONS_AT_ONCE = 50


def sliced_wasserstein(
    key: PRNGKeyArray,
    x: Float[Array, "n d"],
    y: Float[Array, "m d"],
    *,
    p: int = 2,
    num_projections: int = 500,
) -> float:
    r"""(mean over random directions θ of W_pᵖ(⟨θ, x⟩, ⟨θ, y⟩))^(1/p).

    Two samples of the same distribution do not have distance 0. Report their distance, the floor,
    beside it.

    **Arguments:**

    - `key`: for the random directions.
    - `x`, `y`: two samples.
    - `p`: the order of the distance.
    - `num_projections`: the number of directions.

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
        part.shape[1]
        * ot.sliced_wasserstein_distance(a, b, p=p, projections=part, n_projections=part.shape[1])
        ** p
        for part in parts
    ]
    return float((sum(powers) / num_projections) ** (1 / p))


def wasserstein(x: Float[Array, "n d"], y: Float[Array, "m d"], *, p: int = 2) -> float:
    r"""The exact Wasserstein distance W_p between two samples, with Euclidean ground distance.

    At most 5,000 points are allowed, because memory grows quadratically and time cubically.

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
            f"x and y must have at most {_MOST_POINTS:,} points, got {len(a):,} and {len(b):,}: "
            "exact transport needs quadratic memory and cubic time; "
            "use sliced_wasserstein or fewer points"
        )
    cost = ot.dist(a, b, metric="euclidean") ** p
    return float(ot.emd2([], [], cost, numItermax=_MOST_PIVOTS) ** (1 / p))


def boxed_wasserstein(x: Float[Array, "n d"], y: Float[Array, "m d"], half_width: float) -> float:
    r"""The exact transport cost min_π Σᵢⱼ πᵢⱼ ‖xᵢ − yⱼ‖² between the points within ±a.

    This is W₂², not its root. The paper uses it for the Student-t target, whose tails have no
    second moment. It is not 0 for two samples of the same distribution. 1,000 points against 10,000
    take 3 s.

    **Arguments:**

    - `half_width`: a, half the edge length of the box.

    ```python
    x, y = (ksivi.problems.student_t().reference(jax.random.key(k), 200) for k in range(2))
    ksivi.metrics.boxed_wasserstein(x, y, half_width=5.0)
    ```
    """
    ot, width = _pot(), float(as_positive(half_width, "half_width"))
    a, b = (sample[(np.abs(sample) < width).all(axis=1)] for sample in _pair(x, y))
    if not len(a) or not len(b):
        raise ValueError(
            f"x and y must have points within ±{width:g}, got {len(a)} and {len(b)} of them there"
        )
    if len(a) * len(b) > _MOST_PAIRS:
        raise ValueError(
            f"x and y must make at most {_MOST_PAIRS:,} pairs in the box, got {len(a):,} × {len(b):,}"
        )
    return float(ot.emd2([], [], ot.dist(a, b), numItermax=_MOST_PIVOTS))


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
