"""Reasons not to trust a fit. Each function returns a `Doubt`, or None if there is none."""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Int

from .._core.wording import apart
from ..diagnostics import (
    Difference,
    Importance,
    Movement,
    difference,
    sliced_distance,
    truncated_weights,
)
from ..results import Code, Doubt, FitDiagnostics
from ._gaussians import LEAST_MASS, Gaussians, log_gaussian

Draws = Float[np.ndarray, "n d"]

FORGOTTEN = 0.5
"""Chains with less memory of their start than this can check the draws."""
_SURELY = 0.05
"""Importance weights with a smaller standard error than this can check the draws."""
_FAR = 0.11
"""The largest sliced W₂ in normal scores.

With the noise of 1,000 draws it is 1.8 times that of two exact samples.
"""
_OUTSIDE = 0.05
"""The largest share of another run's draws outside the best run's 98% interval."""
_UNLIKELY = 0.3
"""The largest share of draws that are less likely than 95% of the chains' states.

It grows with the dimension: an accurate Gaussian for a logistic regression in 100 dimensions has 0.24.
"""
_LEAST_PART, _MOST_OF_AN_AXIS = 0.01, 0.8
"""Coordinates with at least this part of an axis belong to it, if together they are most of it."""
_TINY = 1e-30


@dataclasses.dataclass(frozen=True)
class Findings:
    """What the checks found.

    **Attributes:**

    - `diagnostics`: the numbers.
    - `doubts`: reasons not to trust the draws.
    - `weighed`, `moved`: the weighted draws and the chains of the checks.
    - `is_light`: whether the weights have light tails, so that averages with them are reliable.
    - `is_close`: whether weights and chains change the draws by hardly more than noise.
    - `improper`: the doubt that the posterior is improper. No better answer can remove it.
    - `draws`: the draws that were checked.
    - `has_settled`: whether the chains were run before, until they had settled. Else they started
        from other draws of the answer.
    """

    diagnostics: FitDiagnostics
    doubts: list[Doubt]
    weighed: Importance | None = None
    moved: Movement | None = None
    is_light: bool = False
    is_close: bool = False
    improper: Doubt | None = None
    draws: Draws | None = None
    has_settled: bool = False


@dataclasses.dataclass(frozen=True)
class Correction:
    """What a correction, by chains or by weights, changes of draws.

    **Attributes:**

    - `change`: of the coordinates.
    - `draws`, `states`: the draws, and what they are compared with along the axes.
    - `axes`: one per column.
    - `weights`: those of the states. Default: equal.
    - `error`: the standard error of a shift.
    """

    change: Difference
    draws: Draws
    states: Draws
    axes: Float[np.ndarray, "d k"]
    weights: Float[np.ndarray, " n"] | None = None
    error: float = 0.0

    @property
    def coordinates(self) -> list[int] | None:
        """The coordinates that it changes; None if no single one stands out."""
        return self.change.where_large(self.error).tolist() or None

    def without(self, coordinates: list[int]) -> "Correction":
        """The same along the axes' projections on all other coordinates."""
        axes = self.axes.copy()
        axes[coordinates] = 0
        is_left = np.any(axes != 0, axis=0)
        return dataclasses.replace(self, axes=axes[:, is_left])

    @functools.cached_property
    def turned(self) -> Difference:
        """The change along the axes."""
        return difference(self.draws @ self.axes, self.states @ self.axes, self.weights)

    @property
    def coordinates_along(self) -> list[int] | None:
        """The coordinates of the axes along which it changes the draws; None if these are many."""
        large = self.axes[:, self.turned.where_large(self.error)]
        parts = (large * self.states.std(axis=0)[:, None]) ** 2
        shares = parts / np.maximum(np.sum(parts, axis=0), _TINY)
        is_in = shares >= _LEAST_PART
        is_spread = np.any(np.sum(shares, axis=0, where=is_in) < _MOST_OF_AN_AXIS)
        found = np.flatnonzero(is_in.any(axis=1)).tolist()
        return None if is_spread or not found else found


def chains_move(found: Correction) -> list[Doubt]:
    """Doubts if chains change the coordinates, or the draws along their principal axes."""
    return _moves("chains of HMC", Code.CHAINS_MOVE, Code.CHAINS_MOVE_AXES, found)


def _moves(what: str, code: Code, code_of_axes: Code, found: Correction) -> list[Doubt]:
    """Axes change with their coordinates. So after a doubt about some coordinates there is one about
    axes only if these are wrong without them too. Axes of one coordinate are about that one."""
    doubts = []
    if not found.change.is_small(found.error):
        large = found.change.too_large(found.error)
        by_tail = found.change.where_only_a_tail(found.error).tolist()
        known = found.coordinates
        doubts.append(code.doubt(f"{what} move the draws: {large}", known, by_tail))
        if known is None or len(known) == len(found.axes):
            return doubts
        found = found.without(known)
    if found.axes.size and not found.turned.is_small(found.error):
        large = found.turned.too_large(found.error)
        sentence = f"{what} move the draws along their principal axes: {large}"
        along = found.coordinates_along
        is_one = along is not None and len(along) == 1
        if not (doubts and is_one):  # alone, that coordinate was found to be right
            doubts.append((code if is_one else code_of_axes).doubt(sentence, along))
    return doubts


def weights_move(
    draws: Draws, weighed: Importance, change: Difference, axes: Float[np.ndarray, "d d"]
) -> list[Doubt]:
    """Doubts if the weights change the draws.

    They also see shares of separate modes, which chains do not.
    """
    weights, error = truncated_weights(weighed.log_weights), weighed.difference_error
    found = Correction(change, draws, weighed.draws, axes, weights, error)
    doubts = _moves("importance weights", Code.WEIGHTS_MOVE, Code.WEIGHTS_MOVE_AXES, found)
    wrong = _shares_wrong(draws, weighed.draws, weights, error, _not_named(doubts, draws.shape[1]))
    return [*doubts, wrong] if wrong else doubts


def _not_named(doubts: list[Doubt], dim: int) -> Int[np.ndarray, " k"]:
    """The coordinates that these doubts leave to be used."""
    if any(one.coordinates is None for one in doubts):
        return np.zeros(0, int)
    return np.setdiff1d(np.arange(dim), [i for one in doubts for i in one.coordinates or ()])


def _shares_wrong(
    draws: Draws,
    weighed: Draws,
    weights: Float[np.ndarray, " m"],
    error: float,
    columns: Int[np.ndarray, " k"],
) -> Doubt | None:
    """Doubts if these coordinates have another joint distribution, such as other shares of modes.

    Coordinates that move are left out: they are named already, and are far off for that reason.
    """
    if not len(columns):
        return None
    distance = sliced_distance(draws[:, columns], weighed[:, columns], weights)
    if distance <= _FAR + error:
        return None
    found = ", at most ".join(apart(distance, _FAR + error))
    return Code.SHARES_WRONG.doubt(f"importance weights move the draws: sliced distance {found}")


def too_unlikely(share: float | None) -> Doubt | None:
    """Doubts if many draws lie where the posterior has hardly any mass.

    The log density depends on all parameters at once. In a posterior with narrow, bent places,
    means, widths and tails of each coordinate can be right, and still most draws lie beside it.
    """
    if share is None or share <= _UNLIKELY:
        return None
    return Code.JOINT_SHAPE.doubt(
        f"draws are where the posterior has hardly any mass: {share:.0%} of them are less likely than "
        f"95% of the chains' states, at most {_UNLIKELY:.0%} to be trusted"
    )


def runs_differ(draws: Draws, other: Float[np.ndarray, "m d"]) -> Doubt | None:
    """Doubts if another run found mass outside the best one.

    A run that is only narrower is no reason for doubt.
    """
    found = difference(draws, other)
    low, high = np.quantile(draws, (0.01, 0.99), axis=0)
    outside = np.mean((other < low) | (other > high), axis=0)
    if found.is_small() or np.max(outside) <= _OUTSIDE:
        return None
    return Code.RUNS_DIFFER.doubt(
        f"independent runs differ, and chains of HMC do not bring them together: "
        f"{found.too_large()}"
    )


def memory_of_modes(moved: Movement, gaussians: Gaussians) -> float:
    """How much more often chains end at the Gaussian where they started.

    Coordinates alone overlook small modes.
    """
    before, after = (_nearest(draws, gaussians) for draws in (moved.before, moved.after))
    memories = [0.0]
    for k in np.unique(before):
        was, is_now = before == k, after == k
        if LEAST_MASS < was.mean() < 1 - LEAST_MASS:
            memories.append(float(is_now[was].mean() - is_now[~was].mean()))
    return max(memories)


def cannot_tell(weighed: Importance, is_light: bool, memory: float) -> Doubt | None:
    """Doubts if neither the chains nor the weights can check the draws.

    Slow chains show nothing.
    """
    if memory < FORGOTTEN or (is_light and weighed.difference_error < _SURELY):
        return None
    why = "too few of them count" if is_light else "their tails are heavy"
    return Code.CHAINS_TOO_SLOW.doubt(
        f"chains are too slow to check the draws, and importance weights cannot: {why}"
    )


def _usable(gaussians: Gaussians) -> list[tuple[np.ndarray, np.ndarray, float]]:
    return [one for one in gaussians.each() if np.isfinite(one[2]) and np.isfinite(one[1]).all()]


def _nearest(draws: Draws, gaussians: Gaussians) -> Int[np.ndarray, " n"]:
    """The Gaussian with the highest density at each draw, weighted by its evidence."""
    logs = [elbo + log_gaussian(mean, root, draws) for mean, root, elbo in _usable(gaussians)]
    return np.argmax(logs, axis=0) if logs else np.zeros(len(draws), int)
