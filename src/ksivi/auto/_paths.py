"""Rprop and L-BFGS from many points at once, on the host.

All paths advance together: a step calls the evaluator once, for the paths that are still active.
The optimisers of Optax and SciPy follow one path, around a function that is compiled with them or
is called for one point. So these are written here.
"""

from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from .._core.hmc import Evaluate
from ._rows import put, rows, where

Points = Float[np.ndarray, "m d"]
Values = Float[np.ndarray, " m"]
Counts = Int[np.ndarray, " m"]
Mask = Bool[np.ndarray, " m"]
State = TypeVar("State", "_Rprop", "_Lbfgs")

_FIRST_STEP, _MIN_STEP, _MAX_STEP, _FASTER, _SLOWER = 1e-2, 1e-8, 1e6, 1.2, 0.5
_SMALL_GAIN = 1e-2
"""Rprop stops where the next step promises a smaller gain, in nats."""
_MEMORY, _ARMIJO, _LONGER, _MAX_SHRINKS = 10, 1e-4, 4.0, 12
_MAX_IDLE = 3
"""L-BFGS stops after this many steps and line searches in a row that gained nothing."""
_ROUNDING = 1e-6
"""Relative error of a log density and of its gradient in single precision."""


def rounding(log_densities: Values) -> Values:
    """Differences of log p that can be errors of rounding."""
    return _ROUNDING * (1 + np.abs(log_densities))


class Places(NamedTuple):
    """Points with −log p, which is ∞ where log p is not finite, and its gradients."""

    x: Points
    losses: Values
    gradients: Points

    def or_lower(self, others: "Places") -> "Places":
        """The lower of the two in every row."""
        return where(others.losses < self.losses, others, self)


def places(evaluate: Evaluate, x: Points) -> Places:
    log_densities, scores = evaluate(x)
    return Places(x, np.where(np.isfinite(log_densities), -log_densities, np.inf), -scores)


def rprop(evaluate: Evaluate, first: Places, num_steps: int) -> Places:
    """The best point of each Rprop path.

    Where log p is not finite, a path returns to the best point and halves the steps. It stops where
    every coordinate has passed an optimum and the next step promises little.
    """
    zeros = np.zeros_like(first.x)
    paths = _Rprop(first, first, zeros + _FIRST_STEP, zeros, zeros > 0)
    return _followed(paths, evaluate, num_steps).best


def lbfgs(
    evaluate: Evaluate, first: Places, num_steps: int, num_early: int
) -> tuple[Places, Points]:
    """The best point of each L-BFGS path, and the point after the first few steps.

    A step here is one trial point. A path stops where no gain is beyond rounding.
    """
    (num, dim), zeros = first.x.shape, np.zeros(len(first.x), int)
    empty = np.zeros((num, _MEMORY, dim))
    pairs = _Pairs(empty, empty, empty[:, :, 0])
    lines = _Lines(pairs.descent(first.gradients), np.ones(num), zeros)
    paths = _Lbfgs(first, first, first.x, zeros + num_early, pairs, lines, zeros)
    ends = _followed(paths, evaluate, num_steps)
    return ends.best, ends.early


def _followed(paths: State, evaluate: Evaluate, num_steps: int) -> State:
    """The paths after so many steps, or fewer where a path stops."""
    ends, ids = rows(paths, np.arange(len(paths.best.x))), np.arange(len(paths.best.x))
    for _ in range(num_steps):
        active = paths.is_active
        if not np.any(active):
            break
        ids, paths = ids[active], rows(paths, active).next(evaluate)
        put(ends, ids, paths)
    return ends


class _Rprop(NamedTuple):
    """Places, best places, and for each coordinate the size of the step, the last step, and whether
    it has passed an optimum."""

    here: Places
    best: Places
    sizes: Points
    moves: Points
    passed: Bool[np.ndarray, "m d"]

    @property
    def is_active(self) -> Mask:
        promised = np.sum(np.abs(self.here.gradients) * self.sizes, axis=1)
        return ~(np.all(self.passed, axis=1) & (promised < _SMALL_GAIN))

    def next(self, evaluate: Evaluate) -> "_Rprop":
        is_finite = np.isfinite(self.here.losses)[:, None]
        gradients = np.where(np.isfinite(self.here.gradients), self.here.gradients, 0)
        turns = np.sign(gradients) * self.moves
        factors = np.where(turns > 0, _FASTER, np.where(turns < 0, _SLOWER, 1.0))
        sizes = np.clip(factors * self.sizes, _MIN_STEP, _MAX_STEP)
        moves = np.where(turns < 0, 0, sizes * np.sign(gradients))
        passed = self.passed | (is_finite & ((turns < 0) | (gradients == 0)))
        here = places(evaluate, np.where(is_finite, self.here.x - moves, self.best.x))
        sizes *= np.where(is_finite, 1.0, _SLOWER)
        return _Rprop(here, self.best.or_lower(here), sizes, moves, passed)


class _Pairs(NamedTuple):
    """The last steps s and changes of the gradient y, newest first, and 1/sᵀy; all 0 where empty."""

    s: Float[np.ndarray, "m k d"]
    y: Float[np.ndarray, "m k d"]
    inverse: Float[np.ndarray, "m k"]

    def pushed(self, s: Points, y: Points) -> "_Pairs":
        """With one more pair, and without the oldest."""
        new = zip(self, (s, y, 1 / _dot(s, y)), strict=True)
        return _Pairs(*(np.concatenate([a[:, None], old[:, :-1]], axis=1) for old, a in new))

    def descent(self, gradients: Points) -> Points:
        """Minus the inverse Hessian of L-BFGS times the gradients, by the two-loop recursion."""
        q, shares = gradients, []
        for j in range(_MEMORY):
            shares.append(self.inverse[:, j] * _dot(self.s[:, j], q))
            q = q - shares[j][:, None] * self.y[:, j]
        q = self._scales(gradients)[:, None] * q
        for j in reversed(range(_MEMORY)):
            share = shares[j] - self.inverse[:, j] * _dot(self.y[:, j], q)
            q = q + share[:, None] * self.s[:, j]
        return -q

    def _scales(self, gradients: Points) -> Values:
        """sᵀy/yᵀy of the newest pair. Without pairs, the step has length 1 at most."""
        newest = 1 / (self.inverse[:, 0] * _dot(self.y[:, 0], self.y[:, 0]))
        first = 1 / np.maximum(1, np.linalg.norm(gradients, axis=1))
        return np.where(self.inverse[:, 0] > 0, newest, first)


class _Lines(NamedTuple):
    """Directions, sizes of the next trial step, and how often the size was reduced."""

    directions: Points
    sizes: Values
    shrinks: Counts

    def reduced(self, here: Places, trial: Places) -> "_Lines":
        """A smaller step, to the minimum of the parabola if the trial point is finite."""
        slopes = self.sizes * _dot(here.gradients, self.directions)
        lowest = -0.5 * slopes / (trial.losses - here.losses - slopes)  # 0 where a loss is ∞
        return self._replace(sizes=self.sizes * np.clip(lowest, 0.1, 0.5), shrinks=self.shrinks + 1)


class _Lbfgs(NamedTuple):
    """Places, best and early places, steps until a path is no longer early, pairs, lines, and the
    steps and line searches in a row that gained nothing."""

    here: Places
    best: Places
    early: Points
    num_early: Counts
    pairs: _Pairs
    lines: _Lines
    idle: Counts

    @property
    def is_active(self) -> Mask:
        slopes = _dot(self.here.gradients, self.lines.directions)
        return np.isfinite(self.here.losses) & (slopes < 0) & (self.idle < _MAX_IDLE)

    def next(self, evaluate: Evaluate) -> "_Lbfgs":
        """Tries a point on each line: goes there, or tries a nearer one next, or starts afresh."""
        lines = self.lines
        trial = places(evaluate, self.here.x + lines.sizes[:, None] * lines.directions)
        promised = -lines.sizes * _dot(self.here.gradients, lines.directions)
        gains, noise = self.here.losses - trial.losses, rounding(self.here.losses)
        is_usable = np.isfinite(trial.gradients).all(axis=1)
        goes = is_usable & (gains >= _ARMIJO * promised - noise)
        fails = ~goes & (lines.shrinks >= _MAX_SHRINKS)
        pairs, learns = self._learnt(trial, goes, fails)
        here = where(goes, trial, self.here)
        # Where nothing was learnt about the curvature, the next step is longer.
        sizes = np.where(goes & ~learns, _LONGER * lines.sizes, 1.0)
        fresh = _Lines(pairs.descent(here.gradients), sizes, np.zeros_like(lines.shrinks))
        lines = where(goes | fails, fresh, lines.reduced(self.here, trial))
        # A step too short to gain more than rounding is not idle while steps become longer.
        is_idle = fails | (goes & (gains <= noise) & (learns | (promised > noise)))
        idle = np.where(goes & (gains > noise), 0, self.idle + is_idle)
        early = where(self.num_early > 0, here.x, self.early)
        best = self.best.or_lower(trial)
        return _Lbfgs(here, best, early, self.num_early - goes, pairs, lines, idle)

    def _learnt(self, trial: Places, goes: Mask, fails: Mask) -> tuple[_Pairs, Mask]:
        """Adds pairs whose curvature is positive beyond rounding. Forgets all of a failed line."""
        s, y = trial.x - self.here.x, trial.gradients - self.here.gradients
        slopes = sum(np.linalg.norm(p.gradients, axis=1) for p in (self.here, trial))
        learns = goes & (_dot(s, y) > _ROUNDING * np.linalg.norm(s, axis=1) * slopes)
        pairs = where(learns, self.pairs.pushed(s, y), self.pairs)
        return where(fails, _Pairs(*(np.zeros_like(part) for part in pairs)), pairs), learns


def _dot(a: Points, b: Points) -> Values:
    return np.einsum("md,md->m", a, b)
