"""Chains of Hamiltonian Monte Carlo that move together, driven from the host or by one program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.compile import one_shot
from .._core.hmc import (
    JITTER,
    LEAPFROG,
    Evaluate,
    Noise,
    Place,
    hmc_transition,
    transition,
    where_finite,
)
from .._core.numerics import full_precision
from .._core.roots import Root
from ..targets import Evaluator, Target, at_points

Points = Float[np.ndarray, "n d"]
States = tuple[Points, Float[np.ndarray, " n"]]

_WORTH_A_PROGRAM = 15_000_000
"""Transitions times numbers in the states. On two cores such a run takes five seconds from the host,
and a program is three times faster once it is compiled, which takes one to three seconds."""
_RANKS = 32
"""Roots of low rank get a multiple of so many vectors, so that other data compile nothing."""


def walkers_from(
    rng: np.random.Generator,
    evaluate: Evaluate,
    before: Points,
    mean: Float[np.ndarray, " d"],
    root: Root,
    num_transitions: int,
) -> "HostWalkers | ProgramWalkers":
    """Chains that start from these points and move in coordinates x = mean + R u.

    The determinant of R is constant, and left out of the log density.
    """
    is_long = num_transitions * before.size >= _WORTH_A_PROGRAM
    if is_long and isinstance(evaluate, Evaluator) and evaluate.fits_a_program(len(before)):
        return ProgramWalkers(rng, evaluate, before, mean, root)
    return HostWalkers(rng, evaluate, before, mean, root)


class HostWalkers:
    """Chains whose arithmetic is NumPy on the host. They compile nothing but the evaluator."""

    def __init__(
        self,
        rng: np.random.Generator,
        evaluate: Evaluate,
        before: Points,
        mean: Float[np.ndarray, " d"],
        root: Root,
    ):
        self.rng, self.evaluate, self.mean, self.root = rng, evaluate, mean, root
        self.place = self._at(root.solve(before - mean))

    def move(self, step: float) -> float:
        """Moves all chains by one transition, and returns the mean acceptance rate."""
        self.place, accepted = hmc_transition(self.rng, self._at, self.place, step)
        return float(accepted.mean())

    def states(self) -> States:
        """Where the chains are now, and log p there."""
        return self.mean + self.root.times(self.place.x), self.place.value

    @np.errstate(all="ignore")
    def _at(self, u: Points) -> Place:
        log_densities, scores = where_finite(self.evaluate, self.mean + self.root.times(u))
        return Place(u, log_densities, self.root.pulled(scores))


class ProgramWalkers:
    """The same chains, a transition being one program, so that no state travels to the host."""

    def __init__(
        self,
        rng: np.random.Generator,
        evaluate: Evaluator,
        before: Points,
        mean: Float[np.ndarray, " d"],
        root: Root,
    ):
        self.evaluate, self.mean, self.root = evaluate, mean, root
        frame = (mean, root.with_rank_of(_RANKS))
        self.frame, self.num_chains = jax.tree.map(_on_device, frame), len(before)
        self.key = jax.random.key(int(rng.integers(2**32)))
        log_densities, scores = where_finite(evaluate, before)
        place = Place(root.solve(before - mean), log_densities, root.pulled(scores))
        self.place = jax.tree.map(_on_device, place)

    def move(self, step: float) -> float:
        """Moves all chains by one transition, and returns the mean acceptance rate."""
        self.evaluate.spend(LEAPFROG * self.num_chains)
        self.key, key = jax.random.split(self.key)
        self.place, rate = _move(
            self.evaluate.target, self.frame, self.place, key, _on_device(step)
        )
        return float(rate)

    def states(self) -> States:
        """Where the chains are now, and log p there."""
        u, value = (np.asarray(part, np.float64) for part in self.place[:2])
        return self.mean + self.root.times(u), value


@one_shot
def _move(
    target: Target,
    frame: tuple[Float[Array, " d"], Root],
    place: Place,
    key: PRNGKeyArray,
    step: Float[Array, ""],
) -> tuple[Place, Float[Array, ""]]:
    mean, root = frame
    keys = jax.random.split(key, 3)
    noise = Noise(
        jax.random.normal(keys[0], place.x.shape),
        jax.random.uniform(keys[1], (len(place.x),), minval=JITTER[0], maxval=JITTER[1]),
        jax.random.uniform(keys[2], (len(place.x),)),
    )

    def at(u: Float[Array, "n d"]) -> Place:
        # The density may compute in another precision than that of the chains.
        value, score = (
            part.astype(u.dtype) for part in at_points(target, mean[None] + root.times(u))
        )
        return Place(u, value, root.pulled(score))

    with full_precision():  # else a GPU moves points by a thousandth of the widest coordinate
        place, accepted = transition(at, place, noise, step, _in_a_program)
    return place, accepted.mean()


def _in_a_program(n: int, change: Any, state: Any) -> Any:
    return jax.lax.fori_loop(0, n, lambda _, state: change(state), state)


def _on_device(number: Any) -> Array:
    return jnp.asarray(number, jnp.result_type(float))
