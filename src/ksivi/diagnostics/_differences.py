"""How two samples differ: means, widths and tails of each coordinate."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from .._core.checks import as_numbers
from .._core.wording import apart
from ..results import SampleDifference

_TINY = 1e-30
_ON_AVERAGE, _AT_WORST = 0.1, 0.3
_TINY_ON_AVERAGE, _TINY_AT_WORST = 0.03, 0.06
_FEWEST_BEYOND, _MOST_BEYOND = 0.006, 0.02
SMALL_CHANGES = (
    f"at most {_ON_AVERAGE:g} on average and {_AT_WORST:g} at worst, tails {_FEWEST_BEYOND:.1%} to "
    f"{_MOST_BEYOND:.0%}"
)
"""The limits of a small change, in words."""
_LEVELS = np.array([0.01, 0.05, 0.95, 0.99])
_NUM_DIRECTIONS, _GRID = 50, 500
_NOISE = 3.1
"""About n times the squared sliced W₂ between n normal draws and their distribution."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """The change from a first sample to a second, better one.

    **Attributes:**

    - `shift`: the change of the mean of each coordinate, in standard deviations of the second
        sample.
    - `width`: the change of the log width of the central 90% interval of each coordinate.
    - `tails`: the shares of the first sample below the second's 1% quantile and above its 99%
        quantile, averaged over the coordinates.
    - `tail_errors`: the standard errors of these two shares.
    - `each_tail`: the same shares of each coordinate.
    - `sizes`: the numbers of draws of both samples; of weighted draws, the effective number.
    """

    shift: Float[np.ndarray, " d"]
    width: Float[np.ndarray, " d"]
    tails: tuple[float, float]
    tail_errors: tuple[float, float] = (0.0, 0.0)
    each_tail: Float[np.ndarray, "2 d"] | None = None
    sizes: tuple[float, float] = (np.inf, np.inf)

    def is_small(self, error: float = 0.0) -> bool:
        """Whether all changes are small.

        Shifts and widths must be at most 0.1 on average and 0.3 at worst. Tails must be within 0.6%
        to 2%, or not further outside than their standard error.

        **Arguments:**

        - `error`: the standard error of a shift. The limits grow by twice this number.
        """
        return not any(self._is_large(error))

    def too_large(self, error: float = 0.0) -> str:
        """The numbers that are over their limits, with the limits; empty if the change is small.

        **Arguments:**

        - `error`: as for `is_small`.
        """
        limits = _ON_AVERAGE + 2 * error, _AT_WORST + 2 * error
        below, above = map(_share, self.tails)
        sentences = (
            _over("means", self.shift, limits, " sd"),
            _over("log widths", self.width, limits),
            f"tails {below} and {above}, within {_FEWEST_BEYOND:.1%} to {_MOST_BEYOND:.0%}",
        )
        large = self._is_large(error)
        return ", ".join(text for text, is_it in zip(sentences, large, strict=True) if is_it)

    def _is_large(self, error: float) -> tuple[bool, bool, bool]:
        """Whether the means, the log widths and the tails are over their limits."""
        changes = (np.abs(self.shift), np.abs(self.width))
        means, widths = (
            not (np.mean(one) <= _ON_AVERAGE + 2 * error and np.max(one) <= _AT_WORST + 2 * error)
            for one in changes
        )
        return means, widths, self._outside(1.0)

    def where_large(self, error: float = 0.0) -> Int[np.ndarray, " k"]:
        """The coordinates with a shift or a width above 0.1, or with a tail outside its limits.

        A tail counts if it is outside by more than its standard error.

        **Arguments:**

        - `error`: the standard error of a shift. The limit grows by twice this number.
        """
        is_large = self._moves_each(error)
        if self.each_tail is not None:
            noise = np.sqrt(self.each_tail / self.sizes[0] + _LEVELS[0] / self.sizes[1])
            is_low = self.each_tail < _FEWEST_BEYOND - noise
            is_large |= np.any(is_low | (self.each_tail > _MOST_BEYOND + noise), axis=0)
        return np.flatnonzero(is_large)

    def where_only_a_tail(self, error: float = 0.0) -> Int[np.ndarray, " k"]:
        """Those of `where_large` whose shift and width are small."""
        large = self.where_large(error)
        return large[~self._moves_each(error)[large]]

    def _moves_each(self, error: float) -> Bool[np.ndarray, " d"]:
        changes = np.maximum(np.abs(self.shift), np.abs(self.width))
        return ~(changes <= _ON_AVERAGE + 2 * error)

    def is_tiny(self, n: float) -> bool:
        """Whether the changes are hardly more than the noise of n draws.

        On average, shifts and widths may exceed 0.03 by half a standard error. At worst, they may
        exceed 0.06 by what noise gives in the worst coordinate.
        """
        return not self._outside(1.0) and self._moves_little(n)

    def _moves_little(self, n: float) -> bool:
        noise = 1.2 * np.sqrt(2 * np.log(2 * len(self.shift)) / n)
        return all(
            np.mean(np.abs(change)) <= _TINY_ON_AVERAGE + 0.5 / np.sqrt(n)
            and np.max(np.abs(change)) <= _TINY_AT_WORST + noise
            for change in (self.shift, self.width)
        )

    def is_undecided(self, n: float | None = None) -> bool:
        """Whether a tail is within two standard errors of a limit: more draws would decide.

        **Arguments:**

        - `n`: if given, tails matter only where all else is tiny, as in `is_tiny`.
        """
        is_near = self._outside(-2.0) and not self._outside(2.0)
        return is_near and (n is None or self._moves_little(n))

    def _outside(self, errors: float) -> bool:
        """Whether a tail is outside its limits by more than this many standard errors."""
        return any(
            share < _FEWEST_BEYOND - errors * error or share > _MOST_BEYOND + errors * error
            for share, error in zip(self.tails, self.tail_errors, strict=True)
        )

    def summary(self) -> SampleDifference:
        """The difference over all coordinates: on average, and in the worst one."""
        shift, width = np.abs(self.shift), np.abs(self.width)
        return SampleDifference(
            float(np.mean(shift)),
            float(np.max(shift)),
            float(np.mean(width)),
            float(np.max(width)),
            *self.tails,
        )

    def __str__(self) -> str:
        return str(self.summary())


def _over(
    name: str, change: Float[np.ndarray, " d"], limits: tuple[float, float], unit: str = ""
) -> str:
    """The average change and the worst one in brackets, with the limits of both."""
    found = float(np.mean(np.abs(change))), float(np.max(np.abs(change)))
    average, worst = (apart(*both) for both in zip(found, limits, strict=True))
    return f"{name} {average[0]} ({worst[0]}){unit}, at most {average[1]} ({worst[1]})"


def _share(share: float) -> str:
    """Two decimals of a per cent, or three if it would look equal to a limit."""
    limits = (f"{limit:.2%}" for limit in (_FEWEST_BEYOND, _MOST_BEYOND))
    return f"{share:.3%}" if f"{share:.2%}" in limits else f"{share:.2%}"


def difference(
    first: Float[np.ndarray, "n d"],
    second: Float[np.ndarray, "m d"],
    weights: Float[np.ndarray, " m"] | None = None,
) -> Difference:
    """The change from the first sample to the second.

    The draws of the second may have weights that sum to 1.
    """
    first = as_numbers(first, "first", ("n", "d"))
    second = as_numbers(second, "second", ("m", first.shape[1]))
    count = len(second)
    weights = (
        np.full(count, 1 / count) if weights is None else as_numbers(weights, "weights", (count,))
    )
    mean = weights @ second
    sd = np.sqrt(weights @ (second - mean) ** 2)
    low, left, right, high = _weighted_quantiles(second, weights)
    old_left, old_right = np.quantile(first, _LEVELS[1:3], axis=0)
    below, above = first < low, first > high
    return Difference(
        (mean - first.mean(axis=0)) / np.maximum(sd, _TINY),
        np.log(np.maximum(right - left, _TINY) / np.maximum(old_right - old_left, _TINY)),
        (float(np.mean(below)), float(np.mean(above))),
        (
            _tail_error(below, second < low, weights),
            _tail_error(above, second > high, weights),
        ),
        np.stack([below.mean(axis=0), above.mean(axis=0)]),
        (len(first), 1 / float(np.sum(weights**2))),
    )


def _tail_error(
    first: Bool[np.ndarray, "n d"], second: Bool[np.ndarray, "m d"], weights: np.ndarray
) -> float:
    """The standard error of a tail's share, averaged over the coordinates.

    The first sample's share is uncertain, and so is the quantile of the second. Coordinates of one
    draw depend on each other, so the variance is that of their average over a draw.
    """
    ours, theirs = first.mean(axis=1), second.mean(axis=1)
    return float(np.sqrt(ours.var() / len(ours) + weights**2 @ (theirs - weights @ theirs) ** 2))


def sliced_distance(
    first: Float[np.ndarray, "n d"],
    second: Float[np.ndarray, "m d"],
    weights: Float[np.ndarray, " m"],
) -> float:
    r"""The sliced W₂ distance to the second, weighted sample, corrected for sampling noise.

    Each coordinate is first mapped to a standard normal by the second sample's marginal. Random
    directions θ then show what means and widths of coordinates do not, such as wrong shares of many
    modes:

        D² = E_θ W₂²(θᵀa, θᵀb) − c (1/n + Σ w²)
    """
    first, second = _normal_scores(
        np.asarray(first, np.float64), np.asarray(second, np.float64), weights
    )
    directions = np.random.default_rng(0).normal(size=(first.shape[1], _NUM_DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    levels = (np.arange(_GRID) + 0.5) / _GRID
    theirs = _weighted_quantiles(second @ directions, weights, levels)
    ours = np.quantile(first @ directions, levels, axis=0)
    noise = _NOISE * (1 / len(first) + np.sum(weights**2))
    return float(np.sqrt(np.maximum(np.mean((ours - theirs) ** 2) - noise, 0)))


def _normal_scores(
    first: np.ndarray, second: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both samples, mapped to standard normals by the second's weighted marginals."""
    from scipy.special import ndtri  # SciPy takes longer to import than this library

    columns = []
    for a, b in zip(first.T, second.T, strict=True):
        order, middles = _middles(b, weights)
        # The tails beyond the outermost draws are unknown: clip at the share of one draw.
        scores = ndtri(np.clip(middles, 1 / len(b), 1 - 1 / len(b)))
        columns.append([np.interp(part, b[order], scores) for part in (a, b)])
    ours, theirs = zip(*columns, strict=True)
    return np.stack(ours, axis=1), np.stack(theirs, axis=1)


def _weighted_quantiles(
    x: np.ndarray, weights: np.ndarray, levels: Float[np.ndarray, " l"] = _LEVELS
) -> Float[np.ndarray, "l d"]:
    """Quantiles that are linear between the middles of the draws' weights.

    They approach NumPy's as n grows.
    """
    columns = []
    for column in x.T:
        order, middles = _middles(column, weights)
        columns.append(np.interp(levels, middles, column[order]))
    return np.stack(columns, axis=1)


def _middles(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order that sorts a column, and the cumulative weight up to the middle of each draw's."""
    order = np.argsort(column)
    return order, np.cumsum(weights[order]) - 0.5 * weights[order]
