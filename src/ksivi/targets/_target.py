"""`Target`: what is to be approximated."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from .._core.checks import as_count, as_floats, as_positive, as_single_key, require_callable, require_point
from .._core.numerics import full_precision
from ._affine import Affine
from ._control_variate import anchored
from ._data import data_density
from ._density import (
    AbstractDensity,
    AbstractMinibatched,
    DataDensity,
    FunctionDensity,
    PlateDensity,
    Point,
    PytreeDensity,
    Rows,
    ScoreDensity,
)
from ._layout import Layout, named_layout, named_leaves, supports_of, unconstrained
from ._model import AbstractModel
from ._probe import as_test_point, probe
from .supports import Support


class Target(eqx.Module):
    r"""An unnormalised density p(x) ∝ exp(log_density(x)) on ℝ^dim.

    **Arguments:**

    - `log_density`: (dim,) → scalar, any JAX code.
    - `dim`: the number of coordinates.
    - `score`: ∇ log p where there is something better than automatic differentiation.
    - `names`: one name a coordinate.
    - `test_point`: where the log density is checked to be finite; the origin unless given.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    target.score(jnp.array([1.0, 2.0]))
    ```
    """

    density: AbstractDensity
    coordinates: Affine | None
    inverse_temperature: Scalar | None
    supports: tuple[Support, ...] | None
    dim: int = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)

    def __init__(
        self,
        log_density: Callable[[Point], Scalar],
        dim: int,
        *,
        score: Callable[[Point], Point] | None = None,
        names: Sequence[str] | None = None,
        test_point: Float[Array, " d"] | None = None,
    ):
        dim = as_count(dim, "dim")
        require_callable(log_density, "log_density")
        if score is not None:
            require_callable(score, "score")
        self.density = FunctionDensity(log_density, score)
        self.coordinates = None
        self.inverse_temperature = None
        self.supports = None
        self.dim = dim
        self.layout = named_layout(names, dim)
        probe(self.density, as_test_point(test_point, dim))

    @classmethod
    def from_score(
        cls,
        score: Callable[[Point], Point],
        dim: int,
        *,
        names: Sequence[str] | None = None,
        test_point: Float[Array, " d"] | None = None,
    ) -> Self:
        """A target known by its score alone; methods that need values refuse it.

        ```python
        target = ksivi.Target.from_score(lambda x: -x, dim=2)
        ```
        """
        dim = as_count(dim, "dim")
        require_callable(score, "score")
        return cls.from_density(ScoreDensity(score), dim, named_layout(names, dim), as_test_point(test_point, dim))

    @classmethod
    def from_data(
        cls,
        log_prior: Callable[[Point], Scalar],
        log_likelihood: Callable[[Point, PyTree], Scalar],
        data: PyTree,
        dim: int,
        *,
        batch_size: int | None = None,
        names: Sequence[str] | None = None,
        test_point: Float[Array, " d"] | None = None,
    ) -> Self:
        r"""The posterior log_prior(x) + N/|batch| · log_likelihood(x, batch).

        New data of the same shapes reuse what was compiled.

        **Arguments:**

        - `log_likelihood`: (x, batch) → scalar, summed over the rows of the batch.
        - `data`: arrays, or a pytree of arrays, with one row an observation; or `ksivi.Rows`, for data that do not fit
            into memory, which `train` reads a few steps ahead.
        - `batch_size`: rows drawn for each estimate of the score; all rows unless given.

        ```python
        def log_likelihood(x, batch):
            return -0.5 * jnp.sum((batch["y"] - batch["x"] @ x) ** 2)

        data = {"x": jnp.ones((100, 2)), "y": jnp.zeros(100)}
        target = ksivi.Target.from_data(lambda x: -0.5 * jnp.sum(x**2), log_likelihood, data, dim=2, batch_size=10)
        ```
        """
        dim = as_count(dim, "dim")
        require_callable(log_prior, "log_prior")
        require_callable(log_likelihood, "log_likelihood")
        density = data_density(log_prior, log_likelihood, data, batch_size)
        return cls.from_density(density, dim, named_layout(names, dim), as_test_point(test_point, dim))

    @classmethod
    def from_pytree(
        cls, log_density: Callable[[PyTree], Scalar], example: PyTree, *, supports: dict[str, Support] | None = None
    ) -> Self:
        """A target over a pytree of parameters, of the shapes of `example`, which is also the test point.

        **Arguments:**

        - `log_density`: of the parameters where they live.
        - `supports`: where that is, by name, such as `{"scale": ksivi.supports.positive()}`: all numbers unless given.
            The target is then on the unconstrained scale, with the Jacobian of the map, `posterior.draws` on yours.

        ```python
        example = {"scale": jnp.ones(()), "beta": jnp.zeros(3)}
        target = ksivi.Target.from_pytree(
            lambda p: -p["scale"] - jnp.sum((p["beta"] / p["scale"]) ** 2) - 3 * jnp.log(p["scale"]),
            example,
            supports={"scale": ksivi.supports.positive()},
        )
        ```
        """
        require_callable(log_density, "log_density")
        names, leaves, treedef = named_leaves(example)
        to = None if supports is None else supports_of(names, supports)
        parts = leaves if to is None else unconstrained(names, leaves, to)
        shapes = tuple(part.shape for part in parts)
        point = jnp.concatenate([jnp.ravel(part) for part in parts])
        density = PytreeDensity(log_density, to, treedef, shapes)
        target = cls.from_density(density, len(point), tuple(zip(names, shapes, strict=True)), point)
        return target._replace(supports=to)

    def log_density(self, x: Point) -> Scalar:
        """log p(x) up to a constant."""
        require_point(x, self.dim)
        with full_precision():
            return self._view_value(self.density.value(self.to_original(x)))

    def score(self, x: Point) -> Point:
        """∇ log p(x)."""
        require_point(x, self.dim)
        with full_precision():
            return self._view_score(self.density.score(self.to_original(x)))

    def log_density_and_score(self, x: Point) -> tuple[Scalar, Point]:
        """Both at the price of one where autodiff gives them together."""
        require_point(x, self.dim)
        with full_precision():
            value, score = self.density.value_and_score(self.to_original(x))
        return self._view_value(value), self._view_score(score)

    def surrogate(self, x: Point) -> tuple[Scalar, Point]:
        """A scalar whose gradient is the score, and the score: one evaluation, to be differentiated once.

        The scalar is log p(x) where values are known and ⟨s(x), x⟩ where they are not, the score held constant.
        """
        here = lax.stop_gradient(x)
        value, score = self.log_density_and_score(here) if self.has_log_density else (None, self.score(here))
        value = jnp.sum(score * here) if value is None else value
        value, score = lax.stop_gradient((value, score))
        return value + jnp.sum(score * (x - here)), score

    def whitened(self, loc: Float[Array, " d"], scale: Float[Array, " d"] | Float[Array, "d d"]) -> Self:
        """The same target in coordinates u, x = loc + scale u. Posteriors trained on it still draw x.

        **Arguments:**

        - `loc`: a centre, such as the mode.
        - `scale`: standard deviations, or a matrix such as a Cholesky factor of a covariance.
        """
        affine = Affine(as_floats(loc, "loc"), as_floats(scale, "scale"))
        if affine.loc.shape != (self.dim,) or affine.scale.shape not in ((self.dim,), (self.dim, self.dim)):
            raise ValueError(
                f"loc must have shape ({self.dim},) and scale ({self.dim},) or ({self.dim}, {self.dim}), "
                f"got {affine.loc.shape} and {affine.scale.shape}"
            )
        if not isinstance(affine.scale, jax.core.Tracer) and not bool(jnp.isfinite(affine.log_det())):
            raise ValueError(f"scale must be finite and invertible, got {affine.scale}")
        affine = affine if self.coordinates is None else self.coordinates.after(affine)
        return self._replace(coordinates=affine)

    def tempered(self, inverse_temperature: float | Scalar) -> Self:
        """p(x)^β: the log density and the score times β."""
        beta = as_positive(inverse_temperature, "inverse_temperature")
        beta = beta if self.inverse_temperature is None else self.inverse_temperature * beta
        return self._replace(inverse_temperature=beta)

    def with_supports(self, supports: dict[str, Support]) -> Self:
        """The same target, whose draws by name are mapped to where each parameter lives."""
        return self._replace(supports=tuple(supports[name] for name, _ in self.layout))

    def unwhitened(self) -> Self:
        """The same target in the coordinates of the log density that was given."""
        return self._replace(coordinates=None)

    def to_original(self, u: Point) -> Point:
        """From this view's coordinates to those of the log density that was given."""
        return u if self.coordinates is None else self.coordinates(u)

    @property
    def has_log_density(self) -> bool:
        """Whether values are known, not the score alone."""
        return not isinstance(self.density, ScoreDensity)

    @property
    def model(self) -> AbstractModel | None:
        """The model that this is the posterior of, where there is one."""
        density = self.density.whole if isinstance(self.density, PlateDensity) else self.density
        found = density.log_density if isinstance(density, PytreeDensity) else None
        return found if isinstance(found, AbstractModel) else None

    @property
    def is_minibatched(self) -> bool:
        """Whether scores are meant to be estimated from minibatches of the data."""
        return isinstance(self.density, AbstractMinibatched) and self.density.batch_size is not None

    def draw_rows(self, key: PRNGKeyArray) -> Rows | None:
        """Row numbers of a random minibatch, or of one for each of a batch of keys; None without minibatches."""
        rows = self.density.draw_rows(jnp.atleast_1d(key)) if isinstance(self.density, AbstractMinibatched) else None
        return rows[0] if rows is not None and key.ndim == 0 else rows

    def on_rows(self, rows: Rows | None) -> Self:
        """The unbiased estimate of this target from some rows of its data; itself for None."""
        if rows is None:
            return self
        if not isinstance(self.density, AbstractMinibatched):
            raise ValueError(
                "rows must be None for a target that was not made with Target.from_data, nor of a subsampled plate"
            )
        density = eqx.tree_at(lambda d: d.rows, self.density, rows, is_leaf=lambda leaf: leaf is None)
        return self._replace(density=density)

    def with_control_variate(self, at: Float[Array, " d"], *, num_newton: int = 0) -> Self:
        r"""The same target with quieter minibatches: scores are estimated as differences from those at a point.

        ∇ log p(x) ≈ ∇ log prior(x) + ∑ᵢ ∇ℓᵢ(a) + N/|batch| ∑ [∇ℓᵢ(x) − ∇ℓᵢ(a)], the last sum over the batch. A plain
        minibatch is noisy by √(N/|batch|) posterior standard deviations, however close to the mode; the noise of this
        one is proportional to the distance from a. All rows are read once.

        **Arguments:**

        - `at`: a point a near the mode, in the coordinates of the log density. The target remembers it as `anchor`.
        - `num_newton`: steps of Newton's method from there first, each reading all rows. The Hessian is that of 16 MiB
            of rows where they stay on the host, so that a step leaves a hundredth or so of the way.

        Reference: Baker, Fearnhead, Fox and Nemeth, Control variates for stochastic gradient MCMC, 2019.
        """
        point = as_test_point(as_floats(at, "at"), self.dim, "at")
        if not isinstance(self.density, DataDensity):
            raise ValueError("a control variate needs a target with rows, made with Target.from_data")
        return self._replace(density=anchored(self.density, point, as_count(num_newton, "num_newton", minimum=0)))

    @property
    def anchor(self) -> Float[Array, " d"] | None:
        """The point of the control variate, if there is one."""
        anchor = self.density.anchor if isinstance(self.density, DataDensity) else None
        return None if anchor is None else anchor.point

    def minibatch(self, key: PRNGKeyArray) -> Self:
        """The estimate from a random minibatch; itself for a target without minibatches."""
        return self.on_rows(self.draw_rows(as_single_key(key)))

    def _view_value(self, value: Scalar) -> Scalar:
        value = value if self.coordinates is None else value + self.coordinates.log_det()
        return value if self.inverse_temperature is None else self.inverse_temperature.astype(value.dtype) * value

    def _view_score(self, score: Point) -> Point:
        score = score if self.coordinates is None else self.coordinates.pull_back(score)
        return score if self.inverse_temperature is None else self.inverse_temperature.astype(score.dtype) * score

    @classmethod
    def from_density(cls, density: AbstractDensity, dim: int, layout: Layout, point: Point) -> Self:
        """For every door: a density of its own, checked at the point."""
        probe(density, point)
        return object.__new__(cls)._replace(
            density=density, coordinates=None, inverse_temperature=None, supports=None, dim=dim, layout=layout
        )

    def _replace(self, **changes: Any) -> Self:
        target = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = changes[field.name] if field.name in changes else getattr(self, field.name)
            object.__setattr__(target, field.name, value)
        return target
