"""The Pareto k-hat of importance weights: how heavy their tail is."""

import math

import numpy as np
from jaxtyping import Float

from .._core.checks import as_numbers


def pareto_khat(log_weights: Float[np.ndarray, " n"]) -> float:
    r"""The shape of a generalised Pareto distribution fitted to the largest min(n/5, 3√n) weights.

    Below 1/2 the weights have a finite variance. Above min(1 − 1/log₁₀ n, 0.7) their mean is
    unreliable.

    ```python
    ksivi.diagnostics.pareto_khat(np.random.default_rng(0).normal(size=2_000))
    ```

    Reference: Vehtari, Simpson, Gelman, Yao and Gabry, Pareto smoothed importance sampling, JMLR
    2024.
    """
    log_weights = as_numbers(log_weights, "log_weights", ("n",))
    if len(log_weights) < 25 or np.isnan(log_weights).any():
        raise ValueError(
            f"log_weights must be at least 25 numbers, none NaN, got shape {log_weights.shape}"
        )
    size = int(min(len(log_weights) / 5, 3 * math.sqrt(len(log_weights))))
    ordered = np.sort(log_weights - log_weights.max())
    exceedances = np.exp(ordered[-size:]) - np.exp(ordered[-size - 1])
    return _fit_shape(exceedances) if exceedances[-1] > 0 else -math.inf


def khat_threshold(num_weights: int) -> float:
    """min(1 − 1/log₁₀ n, 0.7): the largest k-hat at which the mean of n weights is reliable."""
    return min(1 - 1 / math.log10(num_weights), 0.7)


def _fit_shape(x: Float[np.ndarray, " m"]) -> float:
    """Zhang and Stephens' estimate with a weak prior towards 1/2.

    No dependency of the core has it.
    """
    x = np.maximum(x, np.finfo(float).tiny)
    m = len(x)
    grid = np.arange(1, 31 + int(math.sqrt(m)))
    quarter = x[int(m / 4 + 0.5) - 1]
    b = 1 / x[-1] + (1 - np.sqrt((len(grid)) / (grid - 0.5))) / (3 * quarter)
    shapes = np.mean(np.log1p(-b[:, None] * x[None]), axis=1)
    log_likelihood = m * (np.log(-b / shapes) - shapes - 1)
    weights = np.exp(log_likelihood - log_likelihood.max())
    shape = np.mean(np.log1p(-np.sum(b * weights) / weights.sum() * x))
    return float((m * shape + 10 * 0.5) / (m + 10))
