"""The door that particle methods and Markov chains come through, so that one loop serves them all."""

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
    """What a method can say of its own draws at the end; no status means that it ran its steps."""

    status: Status | None
    trusted: bool
    diagnostics: Diagnostics


class AbstractMethod(eqx.Module):
    """Points that move by steps: particles, or the ends of Markov chains. Hand it to `ksivi.run`."""

    start: eqx.AbstractVar[Float[Array, "n d"] | None]
    num_points: eqx.AbstractVar[int]
    num_steps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def same_but_longer(self, shorter: "AbstractMethod") -> bool:
        """Whether a run of the shorter method can be resumed as one of this."""

    @abc.abstractmethod
    def init(self, x: Float[Array, "n d"], target: Target) -> PyTree:
        """The state at the start. Refuses (`ValueError`) a target it cannot serve."""

    @abc.abstractmethod
    def step(self, key: PRNGKeyArray, state: PyTree, target: Target, step: Int[Array, ""]) -> tuple[PyTree, Records]:
        """The next state, and numbers to record: `loss`, `stein_ratio` (of the state that came) and `score_evals`."""

    @abc.abstractmethod
    def positions(self, state: PyTree) -> Float[Array, "n d"]:
        """Where the points are."""

    @abc.abstractmethod
    def keeps(self, steps: Int[np.ndarray, " t"]) -> Bool[np.ndarray, " t"]:
        """Which steps' positions become draws. Where none does, the last positions are the draws."""

    @abc.abstractmethod
    def verdict(self, kept: Float[np.ndarray, "t n d"], history: dict[str, np.ndarray]) -> Verdict:
        """What can be said at the end, from the positions kept and the numbers recorded."""


def as_start(start: Float[Array, "n d"] | None, num_points: int) -> Float[Array, "n d"] | None:
    """Where the points start, one each, in the default precision; None for N(0, I)."""
    if start is None:
        return None
    start = as_samples(start, "start")
    if len(start) != num_points:
        raise ValueError(f"start must hold one point each, {num_points} of them, got {len(start)}")
    return start.astype(jnp.result_type(float))


def equal_but(a: AbstractMethod, b: AbstractMethod, *names: str) -> bool:
    """Whether two methods are the same but for the named fields."""
    if type(a) is not type(b):
        return False
    fields = [field.name for field in dataclasses.fields(a) if field.name not in names]
    return all(bool(eqx.tree_equal(getattr(a, name), getattr(b, name))) for name in fields)


def require_values(target: Target, name: str) -> None:
    if not target.has_log_density:
        raise ValueError(f"{name} needs log-density values, and this target knows its score only")


def state_records(
    x: Float[Array, "n d"], score: Float[Array, "n d"], loss: Scalar, score_evals: int | Int[Array, ""]
) -> Records:
    """The records of a step."""
    return {"loss": loss, "stein_ratio": stein_ratio(x, score, x), "score_evals": jnp.asarray(score_evals, jnp.int32)}
