"""`Target`: the density that is approximated."""

from collections.abc import Callable, Sequence
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from .._core.checks import (
    as_count,
    as_floats,
    as_single_key,
    require_callable,
    require_point,
)
from .._core.numerics import full_precision
from ._affine import Affine
from ._data import data_density
from ._density import AbstractDensity, FunctionDensity, Point, RowIndices, ScoreDensity
from ._frames import columns_of, explaining_columns
from ._model import AbstractModel, NamedDraws, require_model
from ._probe import as_test_point, probe
from ._pytree import Layout, named_layout, pytree_density
from ._rows import Rows
from ._temperature import Temperature
from ._view import AbstractView
from .supports import Support


class Target(AbstractView):
    r"""An unnormalised density p(x) ∝ exp(log_density(x)) on ℝ^dim.

    **Arguments:**

    - `log_density`: (dim,) → scalar, any JAX code.
    - `dim`: the number of coordinates.
    - `score`: ∇ log p, if you have something better than automatic differentiation.
    - `names`: one name per coordinate.
    - `test_point`: where the log density is checked to be finite. Default: the origin.

    ```python
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    target.score(jnp.array([1.0, 2.0]))
    ```
    """

    density: AbstractDensity
    coordinates: Affine | None
    temperature: Temperature | None
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
        self.coordinates = self.temperature = self.supports = None
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
        """A target with a score but no log density.

        `ksivi.fit` integrates the score along lines. Other methods that need values raise
        `ValueError`.

        ```python
        target = ksivi.Target.from_score(lambda x: -x, dim=2)
        ```
        """
        dim = as_count(dim, "dim")
        require_callable(score, "score")
        point = as_test_point(test_point, dim)
        return cls.from_density(ScoreDensity(score), dim, named_layout(names, dim), point)

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

        New data of the same shapes do not compile again.

        **Arguments:**

        - `log_likelihood`: (x, batch) → scalar, the sum over the rows of the batch.
        - `data`: a pytree of arrays with one row per observation; a data frame, of which
            `log_likelihood` gets a dict of arrays by column; or `ksivi.Rows` for data that do not
            fit into memory, which `train` reads a few steps ahead.
        - `batch_size`: the rows drawn for each estimate of the score. Default: all rows.

        ```python
        def log_likelihood(x, batch):
            return -0.5 * jnp.sum((batch["y"] - batch["x"] @ x) ** 2)

        data = {"x": jnp.ones((100, 2)), "y": jnp.zeros(100)}
        log_prior = lambda x: -0.5 * jnp.sum(x**2)
        target = ksivi.Target.from_data(log_prior, log_likelihood, data, dim=2, batch_size=10)
        ```
        """
        dim = as_count(dim, "dim")
        require_callable(log_prior, "log_prior")
        require_callable(log_likelihood, "log_likelihood")
        density = data_density(log_prior, log_likelihood, data, batch_size)
        layout, point = named_layout(names, dim), as_test_point(test_point, dim)
        columns = data.columns if isinstance(data, Rows) else columns_of(data)
        with explaining_columns(columns):
            return cls.from_density(density, dim, layout, point)

    @classmethod
    def from_pytree(
        cls,
        log_density: Callable[[PyTree], Scalar],
        example: PyTree,
        *,
        supports: dict[str, Support] | None = None,
    ) -> Self:
        """A target over a pytree of parameters.

        **Arguments:**

        - `log_density`: a function of the pytree, on the constrained scale.
        - `example`: parameters of the right shapes. They are also the test point.
        - `supports`: the support of each constrained parameter by its name, such as
            `{"scale": ksivi.supports.positive()}`. The target is on the unconstrained scale and
            includes the Jacobian; `posterior.draws` returns constrained values.

        ```python
        example = {"scale": jnp.ones(()), "beta": jnp.zeros(3)}
        log_density = lambda p: -p["scale"] - jnp.sum(p["beta"] ** 2)
        supports = {"scale": ksivi.supports.positive()}
        target = ksivi.Target.from_pytree(log_density, example, supports=supports)
        ```
        """
        require_callable(log_density, "log_density")
        density, layout, point = pytree_density(log_density, example, supports)
        target = cls.from_density(density, len(point), layout, point)
        return target._replace(supports=density.supports)

    def log_density(self, x: Point) -> Scalar:
        """log p(x) up to a constant."""
        require_point(x, self.dim)
        with full_precision():
            return self._value_in_view(self.density.value(self.to_original(x)), x)

    def score(self, x: Point) -> Point:
        """∇ log p(x)."""
        require_point(x, self.dim)
        with full_precision():
            return self._score_in_view(self.density.score(self.to_original(x)), x)

    def log_density_and_score(self, x: Point) -> tuple[Scalar, Point]:
        """log p(x) and ∇ log p(x), which cost little more together than one of them."""
        require_point(x, self.dim)
        with full_precision():
            value, score = self.density.value_and_score(self.to_original(x))
        return self._value_in_view(value, x), self._score_in_view(score, x)

    def surrogate(self, x: Point) -> tuple[Scalar, Point]:
        """A scalar whose gradient is the score, and the score, from one evaluation of the target.

        The scalar is log p(x) if values are known, otherwise ⟨s(x), x⟩ with s held constant.
        """
        here = lax.stop_gradient(x)
        if self.has_log_density:
            value, score = self.log_density_and_score(here)
        else:
            score = self.score(here)
            value = jnp.sum(score * here)
        value, score = lax.stop_gradient((value, score))
        return value + jnp.sum(score * (x - here)), score

    def with_supports(self, supports: dict[str, Support]) -> Self:
        """The same target, whose draws by name are mapped to these supports."""
        return self._replace(supports=tuple(supports[name] for name, _ in self.layout))

    @property
    def has_log_density(self) -> bool:
        """Whether log p(x) is known, and not only its score."""
        return self.density.has_values

    @property
    def model(self) -> AbstractModel | None:
        """The probabilistic program whose posterior this is, or None."""
        return self.density.model

    def prior_predictive(self, key: PRNGKeyArray, n: int) -> NamedDraws:
        """n draws from the prior of a NumPyro or PyMC model, each with the data that it simulates.

        Parameters and deterministic sites are on the model's scale. The simulated data have the
        names and shapes of the observed sites. The observed values play no part, and neither do
        factors and potentials, which cannot be simulated.

        ```python
        import numpyro, numpyro.distributions as dist

        def model(y):
            rate = numpyro.sample("rate", dist.Gamma(2, 1))
            numpyro.sample("y", dist.Poisson(rate), obs=y)

        target = ksivi.from_numpyro(model, jnp.array([2, 0, 3]))
        drawn = target.prior_predictive(jax.random.key(0), 100)
        drawn["rate"].shape, drawn["y"].shape  # (100,), (100, 3)
        ```
        """
        key, n = as_single_key(key), as_count(n, "n")
        parameters, data = require_model(self.model, "prior_predictive").prior_predictive(key, n)
        return {**parameters, **data}

    @property
    def is_minibatched(self) -> bool:
        """Whether scores should be estimated from minibatches of the data."""
        return self.density.is_minibatched

    @property
    def host_rows(self) -> Rows | None:
        """The data, if they stay on the host and are read during training; otherwise None."""
        return self.density.host_rows

    def draw_rows(self, key: PRNGKeyArray) -> RowIndices | None:
        """Row indices of one minibatch per key; None without minibatches."""
        rows = self.density.draw_rows(jnp.atleast_1d(key))
        return rows[0] if rows is not None and key.ndim == 0 else rows

    def on_rows(self, rows: RowIndices | None) -> Self:
        """The unbiased estimate of this target from some rows of its data; itself for None."""
        return self if rows is None else self._replace(density=self.density.on_rows(rows))

    def with_control_variate(self, at: Float[Array, " d"], *, num_newton: int = 0) -> Self:
        r"""The same target with less noisy minibatches, by a control variate at a point a.

        ∇ log p(x) ≈ ∇ log prior(x) + ∑ᵢ ∇ℓᵢ(a) + N/|batch| ∑ [∇ℓᵢ(x) − ∇ℓᵢ(a)]; the last sum is
        over the batch. A plain minibatch has noise of √(N/|batch|) posterior standard deviations,
        even at the mode. Here the noise is proportional to the distance from a. This method reads
        all rows once.

        **Arguments:**

        - `at`: a point a near the mode, in the coordinates of the log density. The target keeps it
            as `anchor`.
        - `num_newton`: steps of Newton's method from there, each of which reads all rows. If rows
            stay on the host, the Hessian is estimated from 16 MiB of them.

        Reference: Baker et al., Control variates for stochastic gradient MCMC, 2019.
        """
        point = as_test_point(as_floats(at, "at"), self.dim, "at")
        num_newton = as_count(num_newton, "num_newton", minimum=0)
        return self._replace(density=self.density.with_control_variate(point, num_newton))

    @property
    def anchor(self) -> Float[Array, " d"] | None:
        """The point of the control variate, or None."""
        return self.density.anchor

    def minibatch(self, key: PRNGKeyArray) -> Self:
        """The estimate from a random minibatch; the target itself if it has no minibatches."""
        return self.on_rows(self.draw_rows(as_single_key(key)))

    @classmethod
    def from_density(cls, density: AbstractDensity, dim: int, layout: Layout, point: Point) -> Self:
        """A target from any form of density, after a check at the point."""
        probe(density, point)
        plain = dict.fromkeys(("coordinates", "temperature", "supports"))
        return object.__new__(cls)._replace(density=density, dim=dim, layout=layout, **plain)
