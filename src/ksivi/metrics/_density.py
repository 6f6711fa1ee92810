"""The log density that samples give to other points, by a kernel density estimate."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Array, Float

from .._core.checks import as_numpy_samples

_PAIRS = 2**22
"""Pairs of points in memory at once: 32 MiB of distances."""

Points = Float[np.ndarray, "n d"]


def log_kde(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[np.ndarray, " m"]:
    r"""The log of a kernel density estimate from samples x, at the points y.

        log 1/n Σᵢ N(yⱼ; xᵢ, H),   H = n^(−2/(d+4)) Ĉ,

    with Ĉ the covariance of x: the Gaussian kernel and Scott's rule, as in SciPy's `gaussian_kde`,
    in double precision. Its sum over draws y of the truth is the log likelihood of the truth under
    x. It is low where x leaves out a part of the truth, and it compares methods by their draws
    alone, without a density of q. In many dimensions H is nearly the covariance itself, so the
    value for the truth's own draws is the one to compare with, not the entropy of the truth.

    The cost is that of n · m distances. Memory does not grow with n · m.

    **Arguments:**

    - `x`: samples. Their covariance must have full rank, so there must be more of them than
        dimensions.
    - `y`: points, such as draws of the truth. A point that is also one of the samples counts
        itself, which makes its value too high.

    **Returns:**

    One log density per point.

    ```python
    x, y = jax.random.normal(jax.random.key(0), (2, 2_000, 2))
    ksivi.metrics.log_kde(x, y[:100]).sum()
    ```

    Reference: Scott, Multivariate Density Estimation, 1992.
    """
    samples = as_numpy_samples(x, "x").astype(np.float64)
    points = as_numpy_samples(y, "y", samples.shape[1]).astype(np.float64)
    n, d = samples.shape
    root = n ** (-1 / (d + 4)) * _root_of_covariance(samples)
    centre = samples.mean(axis=0)
    # In these coordinates the kernel is a standard normal.
    a, b = (np.linalg.solve(root, (part - centre).T).T for part in (samples, points))
    constant = np.log(n) + d / 2 * np.log(2 * np.pi) + np.sum(np.log(np.diag(root)))
    return _log_sums(a, b) - constant


def _root_of_covariance(samples: Points) -> Float[np.ndarray, "d d"]:
    try:
        return np.linalg.cholesky(np.atleast_2d(np.cov(samples.T)))
    except np.linalg.LinAlgError:
        n, d = samples.shape
        raise ValueError(
            f"x must vary in all {d} dimensions, got a covariance of {n} samples that is singular"
        ) from None


def _log_sums(a: Points, b: Points) -> Float[np.ndarray, " m"]:
    """log Σᵢ exp(−‖bⱼ − aᵢ‖²/2) for every j, over blocks of both."""
    width = max(1, min(len(b), _PAIRS // 1_024))
    return np.concatenate([_log_sum(a, part) for part in _blocks(b, width)])


def _log_sum(a: Points, b: Points) -> Float[np.ndarray, " m"]:
    total = np.full(len(b), -np.inf)
    for part in _blocks(a, _PAIRS // len(b)):
        # Squares are expanded: the points are centred and whitened, so nothing cancels.
        squares = np.sum(b**2, axis=1)[:, None] + np.sum(part**2, axis=1) - 2 * b @ part.T
        highest = -np.min(squares, axis=1) / 2
        sums = np.sum(np.exp(-squares / 2 - highest[:, None]), axis=1)
        total = np.logaddexp(total, highest + np.log(sums))
    return total


def _blocks(x: Points, size: int) -> Iterator[Points]:
    return (x[i : i + size] for i in range(0, len(x), size))
