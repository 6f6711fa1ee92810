"""How well the posterior draws of a regression predict."""

import numpy as np
from jaxtyping import Array, Float

from .._core.checks import as_numbers, as_numpy_samples, as_positive


def rmse(predictions: Float[Array, "s n"], y: Float[Array, " n"]) -> float:
    r"""The root mean squared error √(1/n Σₙ (yₙ − f̄ₙ)²) of the draws' mean prediction f̄.

    Some papers report the error of single draws instead, which is larger.

    ```python
    ksivi.metrics.rmse(jnp.array([[1.0, 2.0], [3.0, 2.0]]), jnp.array([2.0, 3.0]))
    ```
    """
    f, observed = _pair(predictions, y)
    return float(np.sqrt(np.mean((observed - f.mean(axis=0)) ** 2)))


def nll(predictions: Float[Array, "s n"], y: Float[Array, " n"], precision: float | Array) -> float:
    r"""The mean negative log likelihood, −1/n Σₙ log 1/s Σₛ N(yₙ; fₛₙ, 1/γ).

    **Arguments:**

    - `predictions`: fₛₙ, one row per draw.
    - `y`: the observations, in the same units.
    - `precision`: γ, the precision of the noise, in the same units.

    ```python
    ksivi.metrics.nll(jnp.array([[1.0, 2.0], [3.0, 2.0]]), jnp.array([2.0, 3.0]), precision=0.5)
    ```
    """
    from scipy.special import logsumexp

    f, observed = _pair(predictions, y)
    gamma = float(as_positive(precision, "precision"))
    log_likelihoods = 0.5 * (np.log(gamma / (2 * np.pi)) - gamma * (observed[None] - f) ** 2)
    return float(np.mean(np.log(len(f)) - logsumexp(log_likelihoods, axis=0)))


def _pair(predictions, y) -> tuple[np.ndarray, np.ndarray]:
    f = as_numpy_samples(predictions, "predictions").astype(np.float64)
    y = as_numbers(y, "y", ("n",))
    if y.shape != f.shape[1:] or not np.all(np.isfinite(y)):
        raise ValueError(
            f"y must be {f.shape[1]} finite numbers, one per column of predictions, got shape {y.shape}"
        )
    return f, y
