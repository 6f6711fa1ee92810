"""How two samples differ: means, widths and tails, coordinate by coordinate."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._core.checks import as_numbers
from ..results import SampleDifference

_TINY = 1e-30
_ON_AVERAGE, _AT_WORST = 0.1, 0.3
_FEWEST_BEYOND, _MOST_BEYOND = 0.006, 0.02
_LEVELS = np.array([0.01, 0.05, 0.95, 0.99])
_NUM_DIRECTIONS, _GRID = 50, 500
_NOISE = 3.1
"""n times the squared sliced W₂ of n normal draws to their distribution, about."""


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

    def summary(self) -> SampleDifference:
        """The difference over all coordinates: on average, and in the worst one."""
        changes = [float(over(np.abs(c))) for c in (self.shift, self.width) for over in (np.mean, np.max)]
        return SampleDifference(*changes, *self.tails)

    def __str__(self) -> str:
        return str(self.summary())


def difference(
    first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"] | None = None
) -> Difference:
    """From the first sample to the second, whose draws may have weights that sum to 1."""
    first = as_numbers(first, "first", ("n", "d"))
    second = as_numbers(second, "second", ("m", first.shape[1]))
    count = len(second)
    weights = np.full(count, 1 / count) if weights is None else as_numbers(weights, "weights", (count,))
    mean = weights @ second
    sd = np.sqrt(weights @ (second - mean) ** 2)
    low, left, right, high = _weighted_quantiles(second, weights)
    old_left, old_right = np.quantile(first, _LEVELS[1:3], axis=0)
    return Difference(
        (mean - first.mean(axis=0)) / np.maximum(sd, _TINY),
        np.log(np.maximum(right - left, _TINY) / np.maximum(old_right - old_left, _TINY)),
        (float(np.mean(first < low)), float(np.mean(first > high))),
    )


def sliced_distance(
    first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "m d"], weights: Float[np.ndarray, " m"]
) -> float:
    r"""Sliced W₂ from the first sample to the second, weighted one, less what draws of one distribution would show.

    Coordinates are in normal scores of the second's marginals, so that its own are 1 wide. What means and widths of
    coordinates do not see, such as shares of many modes, is far along some other direction:

        D² = E_θ W₂²(θᵀa, θᵀb) − c (1/n + Σ w²)
    """
    first, second = _normal_scores(np.asarray(first, np.float64), np.asarray(second, np.float64), weights)
    directions = np.random.default_rng(0).normal(size=(first.shape[1], _NUM_DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    levels = (np.arange(_GRID) + 0.5) / _GRID
    theirs = _weighted_quantiles(second @ directions, weights, levels)
    ours = np.quantile(first @ directions, levels, axis=0)
    noise = _NOISE * (1 / len(first) + np.sum(weights**2))
    return float(np.sqrt(np.maximum(np.mean((ours - theirs) ** 2) - noise, 0)))


def _normal_scores(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both samples, each coordinate mapped by the second's weighted marginal to a standard normal."""
    from scipy.special import ndtri  # takes longer to import than all of this library

    columns = []
    for a, b in zip(first.T, second.T, strict=True):
        order, middles = _middles(b, weights)
        # One draw's weight within each end, where the tails of the second are unknown.
        scores = ndtri(np.clip(middles, 1 / len(b), 1 - 1 / len(b)))
        columns.append([np.interp(part, b[order], scores) for part in (a, b)])
    ours, theirs = zip(*columns, strict=True)
    return np.stack(ours, axis=1), np.stack(theirs, axis=1)


def _weighted_quantiles(
    x: np.ndarray, weights: np.ndarray, levels: Float[np.ndarray, " l"] = _LEVELS
) -> Float[np.ndarray, "l d"]:
    """At the middle of each draw's weight, and linear between: numpy's quantiles as n grows."""
    columns = []
    for column in x.T:
        order, middles = _middles(column, weights)
        columns.append(np.interp(levels, middles, column[order]))
    return np.stack(columns, axis=1)


def _middles(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of a column, and the weight up to the middle of each draw's own."""
    order = np.argsort(column)
    return order, np.cumsum(weights[order]) - 0.5 * weights[order]
