"""Forms of a log density: what every form can do, and the simplest."""

import abc
import dataclasses
from collections.abc import Callable, Iterator
from typing import ClassVar, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from .._core.sharding import shard_rows
from ._model import AbstractModel
from ._rows import Rows

Point = Float[Array, " d"]
RowIndices = Int[Array, " b"]

MANY_ROWS = 20_000
"""With so many rows an evaluation takes milliseconds, and its arrays take megabytes."""
_NO_ROWS = "a mesh with an axis named data needs a target with rows, made with Target.from_data"


class AbstractDensity(eqx.Module):
    """An unnormalised log density on ℝᵈ.

    A form of density implements `value`, `value_and_score` and `score`, and overrides those of the
    other methods that it supports. By default it has values, no data and no model.
    """

    has_values: ClassVar[bool] = True
    """Whether log p(x) is known, and not only its gradient."""

    @abc.abstractmethod
    def value(self, x: Point) -> Scalar:
        """log p(x) up to a constant."""

    @abc.abstractmethod
    def value_and_score(self, x: Point) -> tuple[Scalar, Point]:
        """log p(x) and ∇ log p(x)."""

    @abc.abstractmethod
    def score(self, x: Point) -> Point:
        """∇ log p(x)."""

    @property
    def given_as(self) -> str:
        """The argument that the user gave, for error messages."""
        return "log_density"

    def explain(self, x: Point) -> str:
        """Why the density or its score is not finite at x, and what to do, for error messages."""
        return (
            "if it is finite elsewhere, give such a point as test_point=; if a parameter is positive "
            "or bounded, use Target.from_pytree with supports="
        )

    @property
    def has_given_score(self) -> bool:
        """Whether the user gave the log density and its score, so that they can be compared."""
        return False

    def derived_score(self, x: Point) -> Point:
        """∇ log p(x) by automatic differentiation of `value`."""
        return jax.grad(self.value)(x)

    @property
    def model(self) -> AbstractModel | None:
        """The probabilistic program behind this density, or None."""
        return None

    @property
    def is_minibatched(self) -> bool:
        """Whether scores should be estimated from minibatches of the data."""
        return False

    def draw_rows(self, keys: PRNGKeyArray) -> Int[Array, "n b"] | None:
        """Row indices of one minibatch per key, for one step; None where all rows are used."""
        return None

    def on_rows(self, rows: RowIndices) -> Self:
        """The unbiased estimate of this density from some rows of its data."""
        raise ValueError(
            "rows must be None: this target has no data; make it with Target.from_data, or from a "
            "NumPyro model with a subsampled plate"
        )

    @property
    def num_rows(self) -> int | None:
        """The number of all rows of the data; None without data."""
        return None

    @property
    def has_many_rows(self) -> bool:
        """Whether an evaluation takes long because of the rows that it reads."""
        return (self.num_rows or 0) >= MANY_ROWS

    def row_blocks(
        self, size: int, chosen: set[int]
    ) -> Iterator[tuple["AbstractDensity", Int[np.ndarray, "p b"]]]:
        """The chosen blocks of `size` rows, consecutive in each part; the last can be smaller.

        Each is a density that holds its rows, and their indices in it, by part. All densities have
        arrays of the same shapes.
        """
        count = self.num_rows
        assert count is not None
        own, length = size // self.num_parts, count // self.num_parts
        begins = length * np.arange(self.num_parts)[:, None]
        for i in sorted(chosen):
            yield self, begins + np.arange(i * own, min((i + 1) * own, length))

    def holding(
        self, rows: Int[np.ndarray, " b"]
    ) -> tuple["AbstractDensity", Int[np.ndarray, " b"]]:
        """A density that holds these rows in memory, and their indices in it."""
        return self, rows

    @property
    def num_parts(self) -> int:
        """The number of equal parts of consecutive rows, each on a device of its own."""
        return 1

    def divided(self, rows: Int[np.ndarray, "q c"]) -> tuple["AbstractDensity", PyTree]:
        """A density whose `on_rows` takes rows themselves, and these rows that this density holds.

        The mesh axis `data` divides the chunks.
        """
        raise ValueError(_NO_ROWS)

    def loaded(self, most_bytes: int) -> "AbstractDensity | None":
        """The density with all rows in memory; None if they would take more bytes than that."""
        return self

    @property
    def far(self) -> "AbstractDensity":
        """The density to use far from the mass, if this one is right near the mass only."""
        return self

    def with_data(self, change: Callable[[PyTree], PyTree]) -> Self:
        """The same density with its data replaced by `change(data)`."""
        raise ValueError(_NO_ROWS)

    @property
    def host_rows(self) -> Rows | None:
        """The data, if they stay on the host and are read during training; otherwise None."""
        return None

    @property
    def calls_python(self) -> bool:
        """Whether the log density is a function outside JAX, which programs call."""
        return False

    def host_values(self, points: Float[np.ndarray, "n d"]) -> list[np.ndarray]:
        """What functions outside JAX return at these points; nothing if there are none."""
        return []

    def at_step(self, step: Int[Array, ""]) -> Self:
        """The density at this step of the rows that were last read from the host."""
        return self

    @property
    def anchor(self) -> Point | None:
        """The point of the control variate, or None."""
        return None

    def with_control_variate(self, point: Point, num_newton: int) -> Self:
        """The density with a control variate for its minibatches at this point."""
        raise ValueError("a control variate needs a target made with Target.from_data")


class FunctionDensity(AbstractDensity):
    """A JAX function, with a score function if one is better than automatic differentiation."""

    log_density: Callable[[Point], Scalar]
    given_score: Callable[[Point], Point] | None

    def value(self, x):
        return self.log_density(x)

    def value_and_score(self, x):
        if self.given_score is None:
            return jax.value_and_grad(self.log_density)(x)
        return self.log_density(x), self.given_score(x)

    def score(self, x):
        return jax.grad(self.log_density)(x) if self.given_score is None else self.given_score(x)

    @property
    def has_given_score(self) -> bool:
        return self.given_score is not None

    def derived_score(self, x):
        return jax.grad(self.log_density)(x)


class ScoreDensity(AbstractDensity):
    """A score without values."""

    has_values: ClassVar[bool] = False

    given_score: Callable[[Point], Point]

    @property
    def given_as(self) -> str:
        return "score"

    def explain(self, x):
        return (
            "if it is finite elsewhere, give such a point as test_point=; if a parameter is positive "
            "or bounded, write the score on an unconstrained scale"
        )

    def value(self, x):
        raise ValueError(
            "this target has only a score (Target.from_score): it has no log-density values"
        )

    def value_and_score(self, x):
        return self.value(x), self.score(x)

    def score(self, x):
        return self.given_score(x)


class BatchDensity(AbstractDensity):
    r"""log_prior(x) + N/|batch| · log_likelihood(x, batch).

    Indices are of all rows, and a device would need all of them. Here `on_rows` takes rows instead.

    **Attributes:**

    - `batch`: the rows, or None. Those on the host are put on the devices by `divided`.
    - `total`: N.
    """

    log_prior: Callable[[Point], Scalar]
    log_likelihood: Callable[[Point, PyTree], Scalar]
    batch: PyTree
    total: int = eqx.field(static=True)

    @property
    def num_rows(self) -> int:
        return self.total

    def on_rows(self, rows):
        return dataclasses.replace(self, batch=rows)

    def divided(self, rows):
        held = jax.tree.map(lambda column: column[rows], self.batch)
        return self.on_rows(None), shard_rows(held)

    def value(self, x):
        size = len(jax.tree.leaves(self.batch)[0])
        return self.log_prior(x) + self.total / size * self.log_likelihood(x, self.batch)

    def value_and_score(self, x):
        return jax.value_and_grad(self.value)(x)

    def score(self, x):
        return jax.grad(self.value)(x)


def uniform_rows(
    keys: PRNGKeyArray, batch_size: int | None, num_rows: int
) -> Int[Array, "n b"] | None:
    """Row indices drawn uniformly with replacement, one minibatch per key."""
    if batch_size is None:
        return None
    return jax.vmap(lambda key: jax.random.randint(key, (batch_size,), 0, num_rows))(keys)
