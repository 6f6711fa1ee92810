"""The forms in which a log density is given: a function, data, a pytree of parameters, or a score alone."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from .layout import split
from .supports import Support

Point = Float[Array, " d"]
Rows = Int[Array, " b"]


class AbstractDensity(eqx.Module):
    """An unnormalised log density on ℝᵈ."""

    @abc.abstractmethod
    def value(self, x: Point) -> Scalar:
        """log p(x) up to a constant."""

    @abc.abstractmethod
    def value_and_score(self, x: Point) -> tuple[Scalar, Point]:
        """log p(x) and ∇ log p(x)."""

    @abc.abstractmethod
    def score(self, x: Point) -> Point:
        """∇ log p(x)."""


class FunctionDensity(AbstractDensity):
    """Any JAX function, with its score where a better one than autodiff is at hand."""

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


class ScoreDensity(AbstractDensity):
    """A score without values."""

    given_score: Callable[[Point], Point]

    def value(self, x):
        raise ValueError("this target knows its score only (Target.from_score): log-density values are not available")

    def value_and_score(self, x):
        return self.value(x), self.score(x)

    def score(self, x):
        return self.given_score(x)


class PytreeDensity(AbstractDensity):
    r"""A log density of a pytree of parameters, laid out as one vector.

    Parameters with supports are given to it as they are there, and the map to there counts:
    log p(u) = log p(θ(u)) + log |det ∂θ/∂u|.
    """

    log_density: Callable[[PyTree], Scalar]
    supports: tuple[Support, ...] | None
    treedef: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def value(self, x):
        parts = split(x, self.shapes)
        if self.supports is None:
            return self.log_density(jax.tree.unflatten(self.treedef, parts))
        values = [to(u) for to, u in zip(self.supports, parts, strict=True)]
        log_det = sum(to.log_det(u) for to, u in zip(self.supports, parts, strict=True))
        return self.log_density(jax.tree.unflatten(self.treedef, values)) + log_det

    def value_and_score(self, x):
        return jax.value_and_grad(self.value)(x)

    def score(self, x):
        return jax.grad(self.value)(x)


class AbstractMinibatched(AbstractDensity):
    """A log density over all rows of its data, or, once `rows` are chosen, its unbiased estimate from those."""

    rows: eqx.AbstractVar[Rows | None]
    batch_size: eqx.AbstractVar[int | None]

    @property
    @abc.abstractmethod
    def num_rows(self) -> int:
        """N, of all rows."""

    def draw_rows(self, key: PRNGKeyArray) -> Rows | None:
        """Row numbers of a minibatch, uniform with replacement; None when the target uses all rows."""
        if self.batch_size is None:
            return None
        return jax.random.randint(key, (self.batch_size,), 0, self.num_rows)


class DataDensity(AbstractMinibatched):
    r"""log_prior(x) + N/|batch| · log_likelihood(x, batch), over all rows until a batch is chosen."""

    log_prior: Callable[[Point], Scalar]
    log_likelihood: Callable[[Point, PyTree], Scalar]
    data: PyTree
    rows: Rows | None
    batch_size: int | None = eqx.field(static=True)

    def value(self, x):
        batch, factor = self.data, 1.0
        if self.rows is not None:
            batch = jax.tree.map(lambda column: column[self.rows], self.data)
            factor = self.num_rows / len(self.rows)
        return self.log_prior(x) + factor * self.log_likelihood(x, batch)

    def value_and_score(self, x):
        return jax.value_and_grad(self.value)(x)

    def score(self, x):
        return jax.grad(self.value)(x)

    @property
    def num_rows(self) -> int:
        return len(jax.tree.leaves(self.data)[0])


class PlateDensity(AbstractMinibatched):
    """A model over a pytree, which has rows of its own and weighs them itself."""

    whole: PytreeDensity
    rows: Rows | None
    size: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    @property
    def num_rows(self) -> int:
        return self.size

    def value(self, x):
        return self._on_rows().value(x)

    def value_and_score(self, x):
        return self._on_rows().value_and_score(x)

    def score(self, x):
        return self._on_rows().score(x)

    def _on_rows(self) -> PytreeDensity:
        if self.rows is None:
            return self.whole
        return eqx.tree_at(lambda d: d.log_density.rows, self.whole, self.rows, is_leaf=lambda leaf: leaf is None)
