"""When draws are accurate: distances and quantiles in normal scores of the truth's marginals."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from ksivi.metrics import sliced_wasserstein

Draws = Float[np.ndarray, "n d"]
_PAIRS, _SIZE = 20, 1_000


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """What was measured of 1,000 draws, and whether it is accurate.

    **Attributes:**

    - `distance`, `floor`: sliced W₂ of normal scores to the truth's, and its median over pairs of exact samples.
    - `mean`, `worst_mean`: |mean| of the normal scores, on average over coordinates and at worst.
    - `width`, `worst_width`: |log(w / true w)|, w the central 90% width in original units.
    - `tails`: shares of draws beyond the true 1% and 99% quantiles, averages over coordinates.
    """

    distance: float
    floor: float
    mean: float
    worst_mean: float
    width: float
    worst_width: float
    tails: tuple[float, float]

    @property
    def failures(self) -> list[str]:
        """The conditions that do not hold, in words."""
        found = {
            f"distance {self.distance:.3f} > 2 × {self.floor:.3f}": self.distance > 2 * self.floor,
            f"mean {self.mean:.2f}": self.mean > 0.1,
            f"worst mean {self.worst_mean:.2f}": self.worst_mean > 0.3,
            f"width {self.width:.2f}": self.width > 0.1,
            f"worst width {self.worst_width:.2f}": self.worst_width > 0.3,
            f"tails {self.tails[0]:.2%}, {self.tails[1]:.2%}": not all(
                0.004 <= share <= 0.025 for share in self.tails
            ),
        }
        return [words for words, failed in found.items() if failed]

    @property
    def accurate(self) -> bool:
        return not self.failures


class Criterion:
    """Measures draws against one truth."""

    def __init__(self, truth: Draws):
        self.sorted = np.sort(truth, axis=0)
        self.truth = self._normal_scores(truth)
        self.quantiles = np.quantile(truth, (0.01, 0.05, 0.95, 0.99), axis=0)
        self.floor = self._floor()

    def measure(self, draws: Draws) -> Accuracy:
        """1,000 draws; of another number everything but the distance, which has no floor then and is NaN."""
        draws = np.asarray(draws, np.float64)
        scores = self._normal_scores(draws)
        distances = (
            [_distance(i, scores, self._block(i)) for i in range(5)]
            if len(draws) == _SIZE
            else np.nan
        )
        distance = np.median(distances)
        low, high = np.quantile(draws, (0.05, 0.95), axis=0)
        mean = np.abs(scores.mean(axis=0))
        with np.errstate(divide="ignore"):
            width = np.abs(np.log((high - low) / (self.quantiles[2] - self.quantiles[1])))
        tails = float((draws < self.quantiles[0]).mean()), float((draws > self.quantiles[3]).mean())
        return Accuracy(
            float(distance), self.floor, mean.mean(), mean.max(), width.mean(), width.max(), tails
        )

    def _normal_scores(self, x: Draws) -> Draws:
        n = len(self.sorted)
        columns = []
        for column, known in zip(x.T, self.sorted.T, strict=True):
            rank = 0.5 * (
                np.searchsorted(known, column, "left") + np.searchsorted(known, column, "right")
            )
            columns.append(ndtri((rank + 0.5) / (n + 1)))
        return np.stack(columns, axis=1)

    def _block(self, i: int) -> Draws:
        """A sample of the truth, another one for each i."""
        return self.truth[np.random.default_rng(i).choice(len(self.truth), _SIZE, replace=False)]

    def _floor(self) -> float:
        pairs = []
        for i in range(_PAIRS):
            both = np.random.default_rng(1_000 + i).choice(
                len(self.truth), 2 * _SIZE, replace=False
            )
            pairs.append(_distance(i, self.truth[both[:_SIZE]], self.truth[both[_SIZE:]]))
        return float(np.median(pairs))


def _distance(seed: int, x: Draws, y: Draws) -> float:
    return float(sliced_wasserstein(jax.random.key(seed), x, y))
