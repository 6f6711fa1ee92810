"""What a fit will cost, said early, by the time of the first evaluations; and when its budget has ended."""

import math
import time

from ..targets import Evaluator
from ..training import Stages
from ._measured import LARGE_DIM

_LEAST, _LEAST_WITH_FEW_CHAINS = 80_000, 25_000
"""The number of evaluations that a fit makes if a Gaussian is enough. Others make more. In many
dimensions there are fewer chains if evaluations are expensive, and so fewer evaluations."""
_LONG = 60.0
"""Seconds. A longer fit is announced."""
_FEWEST_CALLS, _SOON = 5, 5.0
"""The price is known after so many calls, or after so many seconds."""
_LEAST_POINTS, _LEAST_EXPENSIVE_POINTS = 32, 8
"""Fewer points cost as much as these."""


class Price:
    """Watches an evaluator, and remarks once if the fit will take long.

    **Arguments:**

    - `is_advised`: whether to say that minibatches would be quicker.
    """

    def __init__(self, bar: Stages, evaluate: Evaluator, is_advised: bool):
        self._bar, self._evaluate, self._is_advised = bar, evaluate, is_advised
        self._began = self._last = time.perf_counter()
        self._points = self._calls = self._count = 0
        self._seconds, self._is_known = math.inf, False

    def __call__(self, count: int) -> None:
        """Is called before each evaluation, with the number of points of all so far."""
        self._bar.evaluated(count)
        if self._is_known:
            return
        now = time.perf_counter()
        if self._points:  # the first call also compiles, so the quickest counts
            self._seconds = min(self._seconds, (now - self._last) / self._points)
        self._last, self._points = now, max(count - self._count, self._least_points)
        self._count, self._calls = count, self._calls + 1
        is_soon = self._calls > 2 and now - self._began > _SOON
        self._is_known = self._calls > _FEWEST_CALLS or is_soon
        if self._is_known and self._least * self._seconds > _LONG:
            self._bar.remark(self._text())

    @property
    def _least_points(self) -> int:
        return _LEAST_EXPENSIVE_POINTS if self._evaluate.is_expensive else _LEAST_POINTS

    @property
    def _least(self) -> int:
        return _least_evaluations(self._evaluate)

    def _text(self) -> str:
        minutes = self._least * self._seconds / 60
        each = f"{1e3 * self._seconds:.2g} ms each"
        needs = f"it needs at least {self._least:,} evaluations, {each}"
        price = f"this fit may take {minutes:.0f} min or more: {needs}"
        return f"{price}. {_about_rows(self._evaluate)}" if self._is_advised else price


class EndedInSearch(RuntimeError):
    """The budget has ended a search. The fit that it belongs to has nothing to return."""


def ended_in_search(budget: float, evaluate: Evaluator, is_advised: bool) -> EndedInSearch:
    """The error of a search that its budget has ended, in words."""
    ended = (
        f"budget_s = {budget:g} s ended during the search, after {evaluate.count:,} evaluations of the "
        f"log density; a fit needs at least {_least_evaluations(evaluate):,}: give a larger budget_s, "
        "or a log density that is quicker"
    )
    return EndedInSearch(f"{ended}. {_about_rows(evaluate)}" if is_advised else ended)


def _least_evaluations(evaluate: Evaluator) -> int:
    has_few_chains = evaluate.dim > LARGE_DIM and evaluate.is_expensive
    return _LEAST_WITH_FEW_CHAINS if has_few_chains else _LEAST


def _about_rows(evaluate: Evaluator) -> str:
    """How minibatches would help, as a sentence."""
    num_rows = evaluate.target.density.num_rows
    if num_rows is None:
        return (
            "If the log density is a sum over many rows, Target.from_data with batch_size=1_000 or a "
            "subsampled plate of NumPyro makes it quicker"
        )
    return (
        f"Each evaluation reads all {num_rows:,} rows. With batch_size=1_000, Target.from_data lets "
        "fit use some of the rows, and fit measures the error"
    )
