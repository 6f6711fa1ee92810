r"""How far draws could be shown to be off, for each coordinate: lower bounds with standard errors.

Short chains start at draws of the answer q and move towards the target p. For a quantity T, such as
a mean, what they change is usually a lower bound of the error, as in the diagnostic TADDAA:

    |T(q_t) − T(q)| ≤ |T(p) − T(q)|,   q_t the distribution of the chains after t transitions

It fails where chains overshoot, or leave a narrow place slowly: in 5 of 250 fits, and in 46 of 250
sets of draws that were made wrong on purpose.

Weighted draws estimate T(p) itself. Reference: Wang, Kasprzak and Huggins, A targeted accuracy
diagnostic for variational approximations, AISTATS 2023.
"""

import statistics
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Draws = Float[np.ndarray, "n p"]
Rows = Float[np.ndarray, "p n"]
Column = Float[np.ndarray, " p"]

_LEFT, _RIGHT, _FAR_LEFT, _FAR_RIGHT, _NEAR = 0.05, 0.95, 0.01, 0.99, 0.025
"""Levels of quantiles, and how far around a level the density there is measured."""
_MISSED = 0.05
"""The share of fits in which a bound may exceed an error."""
_ERRORS = 2.0
"""A bound exceeds no error after this number of standard errors is taken away."""
_MOST_AT_ONCE = 1_000_000
_MOST_DRAWS, _FEWEST_DRAWS = 600_000, 1_000
_MOST_WEIGHED, _FEWEST_WEIGHED = 300_000, 500
_MOST_STATES = 2_000_000
"""So many numbers are used at most, and so few draws at least: the bounds take a fraction of the
time of the checks."""
_TINY = 1e-30


class Bounds(NamedTuple):
    """Bounds and standard errors for each number.

    **Attributes:**

    - `mean`, `mean_error`: of the error of the mean, in standard deviations of the draws.
    - `width`, `width_error`: of the error of the log width of the central 90% interval.
    - `tails`, `tails_error`: of the error of the probability outside the draws' 1% and 99%
        quantiles, which is 2% if the draws are right.
    """

    mean: Column
    mean_error: Column
    width: Column
    width_error: Column
    tails: Column
    tails_error: Column


class Better(NamedTuple):
    """What the draws are compared with.

    **Attributes:**

    - `states`: states of chains; those of one chain may depend on each other.
    - `before`: where the chains began, if these are draws of the answer.
    - `weighed`, `weights`: weighted draws, if their weights are reliable. The weights sum to 1.
    """

    states: Float[np.ndarray, "k c p"]
    before: Float[np.ndarray, "c p"] | None = None
    weighed: Float[np.ndarray, "m p"] | None = None
    weights: Float[np.ndarray, " m"] | None = None

    def columns(self, part: slice) -> "Better":
        before = None if self.before is None else self.before[:, part]
        weighed = None if self.weighed is None else self.weighed[:, part]
        return Better(self.states[:, :, part], before, weighed, self.weights)


class _Change(NamedTuple):
    """Estimates of T(p) − T(q) or T(q_t) − T(q), one row per quantity, and their errors."""

    change: Float[np.ndarray, "3 p"]
    error: Float[np.ndarray, "3 p"]


def error_bounds(draws: Draws, better: Better) -> Bounds:
    """Lower bounds of the errors of draws that the answer gave.

    They are lowered for the number of quantities, so that no bound − 2 errors exceeds its error
    in about 95% of fits. The cost is linear in the number of columns.
    """
    num = draws.shape[1]
    better, draws = _thinned(better), _every(draws, _MOST_DRAWS, _FEWEST_DRAWS)
    parts = [_changes(draws[:, one], better.columns(one)) for one in _slices(len(draws), num)]
    count = 3 * num * (1 if better.weighed is None else 2)
    certainty = statistics.NormalDist().inv_cdf(1 - _MISSED / (2 * max(count, 1)))
    lower = [
        np.concatenate(rows, axis=1)
        for rows in zip(*(_lowered(one, certainty) for one in parts), strict=True)
    ]
    bound, error = lower
    return Bounds(bound[0], error[0], bound[1], error[1], bound[2], error[2])


def _slices(num_draws: int, num: int) -> Iterator[slice]:
    width = max(1, _MOST_AT_ONCE // num_draws)
    return (slice(start, start + width) for start in range(0, max(num, 1), width))


def _thinned(better: Better) -> Better:
    """Fewer states of each chain, and fewer weighted draws, where there are very many numbers."""
    kept = max(1, _MOST_STATES // max(better.states[0].size, 1))
    states = better.states[:: -max(1, -(-len(better.states) // kept))]
    if better.weighed is None or better.weights is None:
        return better._replace(states=states)
    weighed = _every(better.weighed, _MOST_WEIGHED, _FEWEST_WEIGHED)
    weights = better.weights[:: len(better.weights) // len(weighed)][: len(weighed)]
    return better._replace(states=states, weighed=weighed, weights=weights / weights.sum())


def _every(draws: Draws, most: int, fewest: int) -> Draws:
    """Every k-th draw, so that at most so many numbers are left, or so few draws."""
    num = min(len(draws), max(fewest, most // max(draws.shape[1], 1)))
    return draws[:: len(draws) // num][:num]


def _lowered(found: list[_Change], certainty: float) -> tuple[np.ndarray, np.ndarray]:
    """The larger lower bound of each quantity, by chains or by weights, and its error."""
    sizes = np.stack([np.abs(one.change) for one in found])
    errors = np.stack([one.error for one in found])
    surely = np.where(np.isnan(sizes - errors), -np.inf, sizes - certainty * errors)
    best = np.argmax(surely, axis=0)[None]
    size, error = (np.take_along_axis(one, best, axis=0)[0] for one in (sizes, errors))
    return np.maximum(
        size - (certainty - _ERRORS) * error, np.where(np.isnan(size), size, 0)
    ), error


@np.errstate(all="ignore")  # a number that overflows has no bounds
def _changes(draws: Draws, better: Better) -> list[_Change]:
    """By chains, and by weights if there are any."""
    answer = _Sample.of(np.ascontiguousarray(draws.T))
    noise = answer.own_variance / len(draws)
    found = [_by_chains(answer, noise, better)]
    if better.weighed is not None and better.weights is not None:
        found.append(_by_weights(answer, noise, better.weighed, better.weights))
    is_constant = np.ptp(draws, axis=0) == 0
    right = np.where(_are_all(draws[0], better), 0.0, np.nan)  # of numbers without a scale
    return [_Change(*(np.where(is_constant, right, part) for part in one)) for one in found]


def _are_all(values: Column, better: Better) -> Bool[np.ndarray, " p"]:
    """Whether all states and all weighed draws have these values."""
    same = np.all(better.states == values, axis=(0, 1))
    return same if better.weighed is None else same & np.all(better.weighed == values, axis=0)


class _Sample(NamedTuple):
    """What is known of a sample: moments, quantiles, and the densities at the 5% and the 95% one."""

    mean: Column
    sd: Column
    levels: Float[np.ndarray, "4 p"]
    density: Float[np.ndarray, "2 p"]

    @classmethod
    def of(cls, x: Rows, weights: Float[np.ndarray, " n"] | None = None) -> "_Sample":
        wanted = [_LEFT, _RIGHT, _FAR_LEFT, _FAR_RIGHT]
        wanted += [level + near for level in wanted[:2] for near in (-_NEAR, _NEAR)]
        found = _quantiles(x, np.array(wanted), weights)
        spread = np.maximum(np.stack([found[5] - found[4], found[7] - found[6]]), _TINY)
        return cls(x.mean(axis=1), x.std(axis=1), found[:4], 2 * _NEAR / spread)

    @property
    def log_width(self) -> Column:
        return np.log(np.maximum(self.levels[1] - self.levels[0], _TINY))

    @property
    def pulls(self) -> Float[np.ndarray, "2 p"]:
        """How much a draw below the 5% quantile, or above the 95% one, widens the interval."""
        return 1 / (self.density * np.exp(self.log_width))

    def influence(self, of: "_Sample", x: Rows) -> Float[np.ndarray, "3 p n"]:
        """How much each of these points moves the mean, the log width and the tails.

        The average over a sample is the mean, the log width up to a constant, to first order, and
        the share beyond the outer quantiles. Units and quantiles are those of the sample `of`.
        """
        left, right = self.levels[:2, :, None]
        low, high = of.levels[2:, :, None]
        pulls = self.pulls[..., None]
        found = np.empty((3, *x.shape))
        found[0] = x / np.maximum(of.sd, _TINY)[:, None]
        found[1] = ((x <= left) - _LEFT) * pulls[0] + ((x > right) - (1 - _RIGHT)) * pulls[1]
        found[2] = (x < low) | (x > high)
        return found

    @property
    def own(self) -> Float[np.ndarray, "3 p"]:
        """The average influence of the sample's own draws."""
        zero = np.zeros_like(self.mean)
        return np.stack([self.mean / np.maximum(self.sd, _TINY), zero, zero + 2 * _FAR_LEFT])

    @property
    def own_variance(self) -> Float[np.ndarray, "3 p"]:
        """The variance of the influence of the sample's own draws."""
        inside, both = _LEFT * (1 - _LEFT), np.ones_like(self.mean)
        widths = inside * np.sum(self.pulls**2, axis=0) - 2 * _LEFT**2 * np.prod(self.pulls, axis=0)
        return np.stack([both, widths, 2 * _FAR_LEFT * (1 - 2 * _FAR_LEFT) * both])


def _by_chains(answer: _Sample, noise: Float[np.ndarray, "3 p"], better: Better) -> _Change:
    r"""What the chains change. Chains are independent; states of a chain are averaged.

    Where a chain ends depends on where it began, and the answer's own T is known from more draws.
    So β times the difference of the starts to the answer is taken away:

        T(states) − T(answer) − β (T(starts) − T(answer)),   β the regression of ends on starts
    """
    num_states, num_chains, num = better.states.shape
    pooled = np.ascontiguousarray(better.states.reshape(-1, num).T)
    reached = _Sample.of(pooled)
    ends = reached.influence(answer, pooled).reshape(3, num, num_states, num_chains).mean(axis=2)
    change = _apart(reached, answer, ends.mean(axis=2))
    if better.before is None:
        return _Change(change, np.sqrt(ends.var(axis=2, ddof=1) / num_chains + noise))
    began = answer.influence(answer, np.ascontiguousarray(better.before.T))
    slope = _regression(began, ends)
    rest = (ends - slope[..., None] * began).var(axis=2, ddof=1) / num_chains
    change -= slope * (began.mean(axis=2) - answer.own)
    return _Change(change, np.sqrt(rest + (1 - slope) ** 2 * noise))


def _by_weights(
    answer: _Sample,
    noise: Float[np.ndarray, "3 p"],
    weighed: Draws,
    weights: Float[np.ndarray, " m"],
) -> _Change:
    x = np.ascontiguousarray(weighed.T)
    reached = _Sample.of(x, weights)
    theirs = reached.influence(answer, x)
    mean = theirs @ weights
    variance = (theirs - mean[..., None]) ** 2 @ weights**2 + noise
    return _Change(_apart(reached, answer, mean), np.sqrt(variance))


def _apart(
    reached: _Sample, answer: _Sample, averages: Float[np.ndarray, "3 p"]
) -> Float[np.ndarray, "3 p"]:
    """The changes of mean and tails are those of averages; the log widths are taken as they are."""
    change = averages - answer.own
    change[1] = reached.log_width - answer.log_width
    return change


def _regression(
    began: Float[np.ndarray, "3 p c"], ended: Float[np.ndarray, "3 p c"]
) -> Float[np.ndarray, "3 p"]:
    centred = began - began.mean(axis=2, keepdims=True)
    together = np.sum(centred * (ended - ended.mean(axis=2, keepdims=True)), axis=2)
    slope = together / np.maximum(np.sum(centred**2, axis=2), _TINY)
    return np.clip(slope, 0, 1)


def _quantiles(
    x: Rows, levels: Float[np.ndarray, " l"], weights: Float[np.ndarray, " n"] | None
) -> Float[np.ndarray, "l p"]:
    if weights is None:
        ordered = np.sort(x, axis=1)
        places = levels * (x.shape[1] - 1)
        low = np.floor(places).astype(int)
        high = np.minimum(low + 1, x.shape[1] - 1)
        share = (places - low)[:, None]
        return (1 - share) * ordered[:, low].T + share * ordered[:, high].T
    columns = []
    for row in x:
        order = np.argsort(row)
        middles = np.cumsum(weights[order]) - 0.5 * weights[order]
        columns.append(np.interp(levels, middles, row[order]))
    return np.stack(columns, axis=1)
