"""Hamiltonian Monte Carlo for many chains at once, in NumPy around an evaluator or in JAX."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

Points = Float[np.ndarray, "n d"]
Numbers = Float[np.ndarray, " n"]
Evaluate = Callable[[Points], tuple[Numbers, Points]]
"""Log densities and scores of points."""

Repeat = Callable[[int, Callable[[Any], Any], Any], Any]
"""Changes a state n times, in Python or in a program."""

LEAPFROG = 8
JITTER = (-1.5, 0.3)
"""Bounds of the log of the factor of a step size."""


class Place(NamedTuple):
    """A point for each chain, log density and score there, and anything else computed there.

    `extra` is None, or an array or a tuple of arrays with one row per chain.
    """

    x: Float[Any, "n d"]
    value: Float[Any, " n"]
    score: Float[Any, "n d"]
    extra: Any = None

    def times(self, beta: Numbers) -> "Place":
        """The place for the density p^β, with one β per chain."""
        return self._replace(value=beta * self.value, score=beta[:, None] * self.score)


class Noise(NamedTuple):
    """The random numbers of a transition: momenta, log factors of step sizes, and uniform numbers."""

    momentum: Float[Any, "n d"]
    jitter: Float[Any, " n"]
    uniform: Float[Any, " n"]


def hmc_transition(
    rng: np.random.Generator,
    evaluate: Callable[[Points], Place],
    place: Place,
    step: float | Numbers,
) -> tuple[Place, Numbers]:
    """The next place of every chain, and the probabilities with which proposals were accepted.

    **Arguments:**

    - `evaluate`: the place at one point for each chain.
    - `step`: step size, of all chains or of each. It is jittered, so that some chains take small
        steps into narrow regions.
    """
    n, dim = place.x.shape
    noise = Noise(rng.standard_normal((n, dim)), rng.uniform(*JITTER, n), rng.random(n))
    with np.errstate(all="ignore"):  # a path may leave all numbers behind, and is then refused
        return transition(evaluate, place, noise, step)


def _in_python(n: int, change: Callable[[Any], Any], state: Any) -> Any:
    for _ in range(n):
        state = change(state)
    return state


def transition(
    evaluate: Callable[[Any], Place],
    place: Place,
    noise: Noise,
    step: Any,
    repeat: Repeat = _in_python,
) -> tuple[Place, Any]:
    """The transition with these random numbers, of NumPy arrays or, in a program, of JAX arrays.

    **Arguments:**

    - `repeat`: how a state is changed n times.
    """
    xp, p = place.x.__array_namespace__(), noise.momentum
    steps = step * xp.exp(noise.jitter)
    leapfrog = functools.partial(_leapfrog, evaluate, steps[:, None])
    new, momentum = repeat(LEAPFROG, leapfrog, (place, p))
    gain = new.value - place.value - 0.5 * ((momentum**2).sum(axis=1) - (p**2).sum(axis=1))
    # Where p is 0 the gain is +∞, and any finite point is accepted.
    is_finite = xp.isfinite(new.value) & ~xp.isnan(gain) & xp.isfinite(new.x).all(axis=1)
    probability = xp.exp(xp.minimum(xp.where(is_finite, gain, -xp.inf), 0))
    return _chosen(noise.uniform < probability, new, place), probability


def _leapfrog(
    evaluate: Callable[[Any], Place], step: Float[Any, "n 1"], state: tuple[Place, Any]
) -> tuple[Place, Any]:
    place, p = state
    p = p + 0.5 * step * place.score
    place = evaluate(place.x + step * p)
    return place, p + 0.5 * step * place.score


def _chosen(accept: Bool[Any, " n"], new: Place, old: Place) -> Place:
    """The rows of the new arrays where they are accepted, else those of the old ones."""

    def rows(new: Any, old: Any) -> Any:
        where = new.__array_namespace__().where
        return where(accept.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(rows, new, old)


def where_finite(evaluate: Evaluate, points: Points) -> tuple[Numbers, Points]:
    """Log densities and scores. Points that are not finite are not evaluated, and give NaN."""
    is_finite = np.isfinite(points).all(axis=1)
    if is_finite.all():
        return evaluate(points)
    log_densities, scores = np.full(len(points), np.nan), np.full(points.shape, np.nan)
    log_densities[is_finite], scores[is_finite] = evaluate(points[is_finite])
    return log_densities, scores
