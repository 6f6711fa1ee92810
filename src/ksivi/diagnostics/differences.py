"""How two samples differ: means, widths and tails, coordinate by coordinate."""

import dataclasses

import numpy as np
from jaxtyping import Float

_TINY = 1e-30
_ON_AVERAGE, _AT_WORST = 0.1, 0.3
_FEWEST_BEYOND, _MOST_BEYOND = 0.006, 0.02
_LEVELS = (0.01, 0.05, 0.95, 0.99)


@dataclasses.dataclass(frozen=True)
class Difference:
    """From one sample to another, which is held for the better one.

    **Attributes:**

    - `shift`: for each coordinate, the change of the mean, in standard deviations of the second.
    - `width`: the change of the log of the central 90% width.
    - `tails`: shares of the first sample beyond the second's 1% and 99% quantiles, averages over coordinates.
    """

    shift: Float[np.ndarray, " d"]
    width: Float[np.ndarray, " d"]
    tails: tuple[float, float]

    def is_small(self, error: float = 0.0) -> bool:
        """Whether shifts and widths stay below 0.1 on average and 0.3 at worst, and tails between 0.6% and 2%.

        **Arguments:**

        - `error`: a standard error of shifts, which are then allowed for twice.
        """
        tails = all(_FEWEST_BEYOND <= share <= _MOST_BEYOND for share in self.tails)
        return tails and all(
            np.mean(np.abs(change)) <= _ON_AVERAGE + 2 * error and np.max(np.abs(change)) <= _AT_WORST + 2 * error
            for change in (self.shift, self.width)
        )

    def __str__(self) -> str:
        shift, width = (f"{np.mean(np.abs(c)):.2f} ({np.max(np.abs(c)):.2f})" for c in (self.shift, self.width))
        return f"means {shift} sd, log widths {width}, tails {self.tails[0]:.1%} and {self.tails[1]:.1%}"


def difference(
    first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"] | None = None
) -> Difference:
    """From the first sample to the second, whose draws may have weights that sum to 1."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    weights = np.full(len(second), 1 / len(second)) if weights is None else weights
    mean = weights @ second
    sd = np.sqrt(weights @ (second - mean) ** 2)
    low, left, right, high = _weighted_quantiles(second, weights)
    old_left, old_right = np.quantile(first, _LEVELS[1:3], axis=0)
    return Difference(
        (mean - first.mean(axis=0)) / np.maximum(sd, _TINY),
        np.log(np.maximum(right - left, _TINY) / np.maximum(old_right - old_left, _TINY)),
        (float(np.mean(first < low)), float(np.mean(first > high))),
    )


def _weighted_quantiles(x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, "4 d"]:
    """At the middle of each draw's weight, and linear between: numpy's quantiles as n grows."""
    columns = []
    for column in x.T:
        order = np.argsort(column)
        middles = np.cumsum(weights[order]) - 0.5 * weights[order]
        columns.append(np.interp(_LEVELS, middles, column[order]))
    return np.stack(columns, axis=1)
