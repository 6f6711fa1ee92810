"""The forms in which a log density is given: a function, data, a pytree of parameters, or a score alone."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from ._layout import split
from ._rows import Rows as HostRows
from .supports import Support

Point = Float[Array, " d"]
Rows = Int[Array, " b"]


class AbstractDensity(eqx.Module):
    """An unnormalised log density on ℝᵈ."""

    given_as: ClassVar[str] = "log_density"
    """The arguments by which it was given, for messages."""

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

    given_as: ClassVar[str] = "score"

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

    @abc.abstractmethod
    def draw_rows(self, keys: PRNGKeyArray) -> Int[Array, "n b"] | None:
        """Row numbers of a minibatch for each key, all of one step; None when the target uses all rows."""


class Anchor(eqx.Module):
    r"""A point a near the mode, with ∑ᵢ ℓᵢ(a) and ∑ᵢ ∇ℓᵢ(a) over all rows: the control variate of minibatches."""

    point: Point
    value: Scalar
    score: Point


class Feed(eqx.Module):
    """Rows that come from the host: those at hand are the minibatches of some steps, one after another."""

    cursor: Int[Array, ""]
    source: HostRows = eqx.field(static=True)


class DataDensity(AbstractMinibatched):
    r"""log_prior(x) + N/|batch| · log_likelihood(x, batch), over all rows until a batch is chosen.

    With an anchor a, the log likelihood ℓ(x) of a minibatch is estimated by its difference from the one linear at a:
    ℓ(a) + ∇ℓ(a)ᵀ(x − a) + N/|batch| ∑ᵢ [ℓᵢ(x) − ℓᵢ(a) − ∇ℓᵢ(a)ᵀ(x − a)], the first two over all rows.

    Of data that are fed only some rows are at hand, and all of those are a batch.
    """

    given_as: ClassVar[str] = "log_prior(x) + log_likelihood(x, data)"

    log_prior: Callable[[Point], Scalar]
    log_likelihood: Callable[[Point, PyTree], Scalar]
    data: PyTree
    rows: Rows | None
    batch_size: int | None = eqx.field(static=True)
    anchor: Anchor | None = None
    feed: Feed | None = None

    def value(self, x):
        batch, size = self.data, len(jax.tree.leaves(self.data)[0])
        if self.rows is not None:
            batch, size = jax.tree.map(lambda column: column[self.rows], self.data), len(self.rows)
        if size == self.num_rows:
            return self.log_prior(x) + self.log_likelihood(x, batch)
        return self.log_prior(x) + self._estimate(x, batch, self.num_rows / size)

    def value_and_score(self, x):
        return jax.value_and_grad(self.value)(x)

    def score(self, x):
        return jax.grad(self.value)(x)

    def _estimate(self, x: Point, batch: PyTree, factor: float) -> Scalar:
        """Of the log likelihood of all rows."""
        here = self.log_likelihood(x, batch)
        if self.anchor is None:
            return factor * here
        a, step = self.anchor, x - self.anchor.point
        there, slope = jax.value_and_grad(lambda point: self.log_likelihood(point, batch))(a.point)
        return a.value + a.score @ step + factor * (here - there - slope @ step)

    @property
    def num_rows(self) -> int:
        return len(jax.tree.leaves(self.data)[0]) if self.feed is None else self.feed.source.num_rows

    def draw_rows(self, keys):
        if self.feed is None:
            return _uniform_rows(keys, self.batch_size, self.num_rows)
        # What was fed is in random order already: the batches of one step follow those of the step before.
        assert self.batch_size is not None
        batches = self.feed.cursor * len(keys) + jnp.arange(len(keys))
        return batches[:, None] * self.batch_size + jnp.arange(self.batch_size)[None, :]


class PlateDensity(AbstractMinibatched):
    """A model over a pytree, which has rows of its own and weighs them itself."""

    whole: PytreeDensity
    rows: Rows | None
    size: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    @property
    def num_rows(self) -> int:
        return self.size

    def draw_rows(self, keys):
        return _uniform_rows(keys, self.batch_size, self.num_rows)

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


def _uniform_rows(keys: PRNGKeyArray, batch_size: int | None, num_rows: int) -> Int[Array, "n b"] | None:
    """Row numbers with replacement."""
    if batch_size is None:
        return None
    return jax.vmap(lambda key: jax.random.randint(key, (batch_size,), 0, num_rows))(keys)
