"""The interface of particle methods and Markov chains, which `run` runs."""

import abc
import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Scalar

from .._core.checks import as_samples
from ..results import Diagnostics, Status
from ..targets import Target, stein_ratio

Records = dict[str, Scalar]


class Verdict(NamedTuple):
    """A method's verdict on its draws. A status of None means that it ran all its steps."""

    status: Status | None
    trusted: bool
    diagnostics: Diagnostics


class AbstractMethod(eqx.Module):
    """Points that move step by step: particles, or the states of Markov chains. See `ksivi.run`."""

    start: eqx.AbstractVar[Float[Array, "n d"] | None]
    num_points: eqx.AbstractVar[int]
    num_steps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def same_but_longer(self, shorter: "AbstractMethod") -> bool:
        """Whether a run of the method `shorter` can be resumed as a run of this method."""

    @abc.abstractmethod
    def init(self, x: Float[Array, "n d"], target: Target) -> PyTree:
        """The state at the start. Raises `ValueError` if the method cannot use the target."""

    @abc.abstractmethod
    def step(
        self, key: PRNGKeyArray, state: PyTree, target: Target, step: Int[Array, ""]
    ) -> tuple[PyTree, Records]:
        """The next state, and records: `score_evals`, and the current `loss` and `stein_ratio`."""

    @abc.abstractmethod
    def positions(self, state: PyTree) -> Float[Array, "n d"]:
        """The positions of the points."""

    @abc.abstractmethod
    def keeps(self, steps: Int[np.ndarray, " t"]) -> Bool[np.ndarray, " t"]:
        """Which steps' positions become draws. If none do, the last positions are the draws."""

    @abc.abstractmethod
    def verdict(self, kept: Float[np.ndarray, "t n d"], history: dict[str, np.ndarray]) -> Verdict:
        """The verdict at the end, from the kept positions and the recorded numbers."""


def as_start(start: Float[Array, "n d"] | None, num_points: int) -> Float[Array, "n d"] | None:
    """The start of the points in the default precision, or None for N(0, I)."""
    if start is None:
        return None
    start = as_samples(start, "start")
    if len(start) != num_points:
        raise ValueError(
            f"start must have {num_points} points, one per particle or chain, got {len(start)}"
        )
    return start.astype(jnp.result_type(float))


def equal_except(a: AbstractMethod, b: AbstractMethod, *names: str) -> bool:
    """Whether two methods are equal except for the named fields."""
    if type(a) is not type(b):
        return False
    fields = [field.name for field in dataclasses.fields(a) if field.name not in names]
    return all(bool(eqx.tree_equal(getattr(a, name), getattr(b, name))) for name in fields)


def require_values(target: Target, name: str) -> None:
    if not target.has_log_density:
        raise ValueError(f"{name} needs log-density values, but this target has only a score")


def state_records(
    x: Float[Array, "n d"],
    score: Float[Array, "n d"],
    loss: Scalar,
    score_evals: int | Int[Array, ""],
) -> Records:
    """The numbers that every method records at a step."""
    return {
        "loss": loss,
        "stein_ratio": stein_ratio(x, score, x),
        "score_evals": jnp.asarray(score_evals, jnp.int32),
    }
