"""Surrogates of a log density with many rows: some rows, corrected around a point by all rows."""

import dataclasses
import math

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from .._core.mixtures import Mixture
from .._core.numerics import log_mean_weight, truncated_weights
from .._core.warped import gaussian
from ..families import GaussianMixture, WarpedGaussian
from ..results import Posterior
from ..targets import (
    CHUNK,
    Evaluator,
    Passes,
    Surrogate,
    Target,
    hessian_of,
    needs_scores,
    surrogate,
)
from ._em import fit_mixture
from ._measured import LARGE_DIM
from ._peak import Peak, has_hessian
from ._walks import rounded

Points = Float[np.ndarray, "n d"]

FEWEST_ROWS = 4_096
"""The number of rows that a surrogate has at first."""
GOOD_ERROR = 0.05
"""Rows are added until the error of the log density is smaller, in nats."""
_MOST_ROWS, _LEAST_GAIN = 2**18, 4
"""The most rows of a surrogate: these, or a quarter of all rows."""
_NUM_DRAWS, _NUM_STEPS = 64, 8
"""Draws at which the error is measured, and steps at which rows are weighed."""
_MARGIN, _GROWTH = 1.5, 4
"""The error falls as 1/√rows. Rows are multiplied by powers of 4."""
_MOST_ADAPTED, _NUM_ADAPTED, _WIDENING = 4, 4_000, 2.0
_ENOUGH, _FEWEST_EFFECTIVE = 0.05, 20
"""Laplace's approximation is adapted if its bound is lower by more nats per dimension, and as long
as weights are worth so many draws per dimension."""
_EVEN = 0.1
"""The least size of a row, as a share of the mean size. No row may be too rare."""


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A surrogate, and its error.

    **Attributes:**

    - `target`: the target with the surrogate as its density.
    - `num_rows`: the number of its rows.
    - `error`: the standard deviation of f − f̃ over draws, in nats. By the inequality of Cauchy and
        Schwarz, no posterior mean is off by many more standard deviations.
    - `is_weighed`: whether rows with large parts beyond second order are preferred.
    """

    target: Target
    num_rows: int
    error: float
    is_weighed: bool = False


class Sampler:
    """Chooses rows of a target, until they are enough.

    **Attributes:**

    - `beta`: the target's inverse temperature.
    """

    def __init__(self, rng: np.random.Generator, target: Target, passes: Passes):
        if target.temperature is not None and target.temperature.base_scale is not None:
            raise ValueError(
                "target must have no base_scale for a fit that uses some of its rows: give all rows, "
                "without batch_size"
            )
        self.rng, self.target, self.passes = rng, target.unwhitened(), passes
        self.beta = 1.0 if target.temperature is None else float(target.temperature.beta)
        self._sizes: Float[np.ndarray, " n"] | None = None

    def plain(self) -> Target:
        """The estimate from random rows, without a correction."""
        zero, rows = np.zeros(self.target.dim), self._uniform(self._fewest_rows)
        return self._with(self._surrogate(*rows, zero, is_relative=False))

    def evaluator(self, target: Target) -> Evaluator:
        """An evaluator with the deadline of the passes."""
        evaluate = Evaluator(target)
        evaluate.deadline = self.passes.deadline
        return evaluate

    def around(self, peak: Peak, before: Sampled | None = None) -> Sampled:
        """A surrogate around a point, with as many rows as it needs.

        **Arguments:**

        - `before`: a surrogate whose error was too large. The new one has more rows.
        """
        draws = peak.draws(self.rng, _NUM_DRAWS)
        exact, _ = self.passes.differences(draws, peak.point)
        if before is None:
            found = self._corrected(peak, self._fewest_rows, None, draws, exact)
        else:
            self._sizes = None
            found = self._grown(peak, before, draws, exact)
        while found.error > GOOD_ERROR and self.can_grow(found):
            found = self._grown(peak, found, draws, exact)
        return found

    def can_grow(self, found: Sampled) -> bool:
        more = found.num_rows if not found.is_weighed else _GROWTH * found.num_rows
        return more <= self._most_rows

    def _grown(
        self, peak: Peak, found: Sampled, draws: Points, exact: Float[np.ndarray, " n"]
    ) -> Sampled:
        """Weighed rows, or more of them."""
        if self._sizes is None:
            steps = peak.draws(self.rng, _NUM_STEPS) - peak.point
            self._sizes = self.passes.third_order(peak.point, steps)
        num = found.num_rows if not found.is_weighed else self._enough(found)
        return self._corrected(peak, num, self._sizes, draws, exact)

    def offset(
        self, found: Target, draws: Points, point: Float[np.ndarray, " d"]
    ) -> tuple[float, float]:
        """The mean of f − f̃ over draws, and its standard deviation: the error."""
        draws = rounded(draws)
        exact, _ = self.passes.differences(draws, point)
        apart = self.beta * exact - self.evaluator(found).log_density(draws)
        mean = self.beta * self.passes.value(point) + float(np.mean(apart))
        return mean, _spread(apart)

    @property
    def _fewest_rows(self) -> int:
        return min(FEWEST_ROWS, self.passes.num_rows // CHUNK * CHUNK)

    @property
    def _most_rows(self) -> int:
        return min(_MOST_ROWS, self.passes.num_rows // _LEAST_GAIN)

    def start(self, peak: Peak, found: Sampled) -> Posterior:
        """Laplace's approximation, adapted to a surrogate, or the Gaussian in many dimensions."""
        if len(peak.point) > LARGE_DIM:
            return Posterior.of(WarpedGaussian.of(gaussian(peak.point, peak.root)), self.target)
        mixture = Mixture(np.ones(1), peak.point[None], peak.root.dense().matrix[None])
        mixture = adapted(self.rng, self.evaluator(found.target), mixture)
        return Posterior.of(GaussianMixture.of(mixture), self.target)

    def _enough(self, found: Sampled) -> int:
        needed = _MARGIN * min(found.error / GOOD_ERROR, 1e3) ** 2
        power = max(1, math.ceil(math.log(max(needed, 1), _GROWTH)))
        most = max(self._most_rows // CHUNK * CHUNK, found.num_rows)
        return min(found.num_rows * _GROWTH**power, most)

    def _corrected(
        self,
        peak: Peak,
        num: int,
        sizes: Float[np.ndarray, " n"] | None,
        draws: Points,
        exact: Float[np.ndarray, " n"],
    ) -> Sampled:
        rows = self._uniform(num) if sizes is None else self._weighed(num, sizes)
        some = self._surrogate(*rows, peak.point)
        _, scores = self.evaluator(self._with(some))(peak.point[None])
        slope = peak.score - scores[0] / self.beta
        bend = None if peak.hessian is None else peak.hessian - hessian_of(some, peak.point)
        target = self._with(some.corrected(slope, bend))
        error = _spread(self.beta * exact - self.evaluator(target).log_density(draws))
        return Sampled(target, num, error, sizes is not None)

    def _uniform(self, num: int) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " q"]]:
        """Random rows, and equal weights of their chunks."""
        rows = self.rng.choice(self.passes.num_rows, num, replace=False)
        return rows, np.full(num // CHUNK, CHUNK / num)

    def _weighed(
        self, num: int, sizes: Float[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " q"]]:
        """Random rows from strata, one chunk from each. The strata's sums of sizes are equal.

        That is Neyman's allocation: the larger a row's part beyond second order, the smaller its
        stratum. The largest rows are all there.
        """
        strata = stratified(np.maximum(sizes, _EVEN * sizes.mean()), num // CHUNK)
        rows = [self.rng.choice(stratum, CHUNK, replace=False) for stratum in strata]
        return np.concatenate(rows), np.array([len(one) for one in strata]) / len(sizes)

    def _surrogate(
        self,
        rows: Int[np.ndarray, " m"],
        weights: Float[np.ndarray, " q"],
        point: Float[np.ndarray, " d"],
        is_relative: bool = True,
    ) -> Surrogate:
        density, places = self.passes.density.holding(rows)
        return surrogate(
            density,
            places.reshape(-1, CHUNK),
            weights,
            point,
            is_bent=has_hessian(len(point)),
            is_relative=is_relative,
            by_scores=is_relative and needs_scores(self.passes.num_rows, len(rows)),
        )

    def _with(self, density: Surrogate) -> Target:
        return eqx.tree_at(lambda t: t.density, self.target, density)


def adapted(rng: np.random.Generator, evaluate: Evaluator, mixture: Mixture) -> Mixture:
    """The mixture, fitted to wider draws with their weights while its bound is far too low.

    Around the mode of a skewed posterior this costs far less than annealing.
    """
    for _ in range(_MOST_ADAPTED):
        log_ratio = _weighed(rng, evaluate, mixture)[1]
        if log_mean_weight(log_ratio) - log_ratio.mean() < _ENOUGH * evaluate.dim:
            break
        draws, log_ratio = _weighed(rng, evaluate, mixture.widened(_WIDENING))
        weights = truncated_weights(log_ratio)
        if not 1 / np.sum(weights**2) > _FEWEST_EFFECTIVE * evaluate.dim:
            break
        mixture = fit_mixture(rng, draws, weights)
    return mixture


def _weighed(
    rng: np.random.Generator, evaluate: Evaluator, mixture: Mixture
) -> tuple[Points, Float[np.ndarray, " n"]]:
    """Draws of a mixture, and their log weights."""
    draws, _ = mixture.draws(rng, _NUM_ADAPTED)
    return draws, evaluate.log_density(draws) - mixture.log_density(draws)


def _spread(apart: Float[np.ndarray, " n"]) -> float:
    """The standard deviation; ∞ where a log density is not finite."""
    return float(np.std(apart)) if np.isfinite(apart).all() else math.inf


def stratified(sizes: Float[np.ndarray, " n"], num_strata: int) -> list[Int[np.ndarray, " k"]]:
    """Indices in strata of about equal sums of sizes, the largest first, at least 256 in each."""
    order = np.argsort(-sizes)
    sums = np.cumsum(sizes[order])
    strata, low = [], 0
    for left in range(num_strata, 0, -1):
        before = sums[low - 1] if low else 0.0
        high = int(np.searchsorted(sums, before + (sums[-1] - before) / left)) + 1
        high = min(max(high, low + CHUNK), len(sizes) - (left - 1) * CHUNK)
        strata.append(order[low : len(sizes) if left == 1 else high])
        low = high
    return strata
