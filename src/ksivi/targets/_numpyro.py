"""Targets from NumPyro models."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Scalar

from .._core.checks import require_callable
from .._core.programs import program_cache
from ._density import RowIndices
from ._frames import with_arrays
from ._model import AbstractModel, NamedDraws, require_proper, warn_of_factors
from ._numbers import with_numbers_as_arrays, without_partial
from ._numpyro_checks import (
    as_arguments,
    blaming_model,
    distribution_name,
    explain_sites,
    latent_sites,
    named_arguments,
    require_observations,
    require_shapes,
    require_whole_numbers,
    warn_of_columns_as_rows,
)
from ._numpyro_data import drawn_again, is_data, is_factor, is_improper, with_values
from ._plates import (
    Plate,
    PlateDensity,
    Sites,
    on_all_rows,
    on_rows,
    require_rows,
    subsampled_plate,
)
from ._pytree import PytreeDensity
from ._target import Target
from ._unsupported import unsupported
from .supports import Support, within

_BOUNDLESS = (
    "simplex",
    "ordered_vector",
    "positive_ordered_vector",
    "corr_cholesky",
    "corr_matrix",
    "lower_cholesky",
    "positive_definite",
    "softplus_positive",
    "softplus_lower_cholesky",
    "scaled_unit_lower_cholesky",
)


class NumPyroModel(AbstractModel):
    """log p(parameters, data) of a NumPyro model on the unconstrained scale.

    The model's arguments are array leaves, so that new data do not compile again. If a plate is
    subsampled, all of its rows are used until `rows` are chosen.
    """

    model: Callable = eqx.field(static=True)
    args: tuple
    kwargs: dict[str, Any]
    plate: Plate | None = eqx.field(static=True)
    rows: RowIndices | None = None

    def __call__(self, parameters: dict[str, Array]) -> Scalar:
        from numpyro.handlers import block
        from numpyro.infer.util import potential_energy

        with block():  # hides these sites from a model that calls this density
            return -potential_energy(self.program, self.args, self.kwargs, parameters)

    def explain(self, parameters):
        from numpyro.handlers import seed, substitute, trace
        from numpyro.infer.util import constrain_fn

        values = constrain_fn(self.program, self.args, self.kwargs, parameters)
        program = substitute(seed(self.program, rng_seed=0), data=values)
        sites = trace(program).get_trace(*self.args, **self.kwargs)
        return explain_sites(sites, named_arguments(self.model, self.args, self.kwargs))

    def deterministics(self, draws):
        names = [name for name, site in self._sites().items() if site["type"] == "deterministic"]
        return _run(jax.random.key(0), self.program, draws, names, self.args, self.kwargs)

    def log_likelihood(self, draws):
        from numpyro.infer import log_likelihood

        found = log_likelihood(self.program, draws, *self.args, parallel=True, **self.kwargs)
        return {name: found[name] for name in self.observed()}

    def observed(self):
        return {name: site["value"] for name, site in self._sites().items() if is_data(site)}

    def predictive(self, key, draws, *args, **kwargs):
        model = on_all_rows(self.model)
        if not args and not kwargs:
            # Without this the model would return the data that it was given.
            model, args, kwargs = drawn_again(model), self.args, self.kwargs
        args, kwargs = with_arrays((args, kwargs))
        return _run(key, model, draws, list(self.observed()), args, kwargs)

    def prior_predictive(self, key, n):
        from numpyro.infer import Predictive

        require_proper(self)
        warn_of_factors(self, stacklevel=5)  # of `Target.prior_predictive`; Equinox wraps methods
        sites = self._sites()
        data = list(self.observed())
        latent = list(latent_sites(sites))
        latent += [name for name, site in sites.items() if site["type"] == "deterministic"]
        model = Predictive(
            drawn_again(self.program), num_samples=n, return_sites=[*latent, *data], parallel=True
        )
        drawn = model(key, *self.args, **self.kwargs)
        return {name: drawn[name] for name in latent}, {name: drawn[name] for name in data}

    def improper(self):
        return tuple(name for name, site in self._sites().items() if is_improper(site))

    def factors(self):
        return tuple(name for name, site in self._sites().items() if is_factor(site))

    def log_likelihood_of(self, data, parameters):
        from numpyro.infer.util import compute_log_probs, constrain_fn

        values = constrain_fn(self.program, self.args, self.kwargs, parameters)
        program = with_values(self.program, data)
        log_probs, _ = compute_log_probs(program, self.args, self.kwargs, values)
        return sum((log_probs[name] for name in data), jnp.zeros(()))

    @property
    def program(self) -> Callable:
        """The model on all rows, or on the chosen rows."""
        return self.model if self.plate is None else on_rows(self.model, self.plate, self.rows)

    def _sites(self) -> Sites:
        return _trace(self.program, self.args, self.kwargs)


def _trace(model: Callable, args: tuple, kwargs: dict[str, Any]) -> Sites:
    """One run of the model, at uniform unconstrained values: improper priors cannot be sampled."""
    from numpyro import handlers
    from numpyro.infer import init_to_uniform

    started = handlers.substitute(handlers.seed(model, rng_seed=0), substitute_fn=init_to_uniform)
    return handlers.trace(started).get_trace(*args, **kwargs)


def _run(
    key: PRNGKeyArray,
    model: Callable,
    draws: NamedDraws,
    names: list[str],
    args: tuple,
    kwargs: dict,
) -> NamedDraws:
    """The named sites of the model, at each draw."""
    from numpyro.infer import Predictive

    if not names:
        return {}
    return Predictive(model, draws, return_sites=names, parallel=True)(key, *args, **kwargs)


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> Target:
    """The posterior of a NumPyro model.

    Parameters keep their names and shapes. `posterior.sample` draws on the unconstrained scale, and
    `posterior.draws` on the model's scale. New data of the same shapes do not compile again, and
    neither do plain floats, unless the model branches on them. Another integer is another program.
    Discrete parameters, and supports that depend on other parameters, raise `ValueError`.

    **Arguments:**

    - `model`: a NumPyro model.
    - `args`, `kwargs`: the arguments that the model is called with. A data frame of pandas or
        polars becomes a dict of arrays by column, without the columns that are not numbers.

    A site that has no data because its argument is None, as `y` below by default, raises
    `ValueError`. To infer such a site, give a model without the argument, `lambda x: model(x)`.

    ```python
    import numpyro, numpyro.distributions as dist

    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        numpyro.sample("y", dist.Normal(slope * x, noise), obs=y)

    target = ksivi.from_numpyro(model, jnp.arange(3.0), y=jnp.array([0.1, 0.9, 2.1]))
    ```

    A plate with a `subsample_size` makes minibatches. Each estimate of the score in training then
    uses that many rows, drawn with replacement; `target.log_density`, ArviZ and predictions use all
    rows. The model is given all of the data and selects the rows of a minibatch itself, with the
    indices that the plate returns or with `numpyro.subsample`. Everything that depends on them must
    be inside the plate, which weighs it. Only one plate may be subsampled, and it must not contain
    parameters.

    ```python
    import numpyro, numpyro.distributions as dist

    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", len(x), subsample_size=10) as rows:
            numpyro.sample("y", dist.Normal(slope * x[rows], 1.0), obs=y[rows])

    target = ksivi.from_numpyro(model, jnp.arange(100.0), jnp.arange(100.0))
    target.minibatch(jax.random.key(0)).score(jnp.ones(1))
    ```
    """
    try:
        import numpyro  # noqa: F401
    except ImportError as error:
        raise ImportError("from_numpyro needs NumPyro: pip install 'ksivi[numpyro]'") from error
    require_callable(model, "model")
    with program_cache():  # NumPyro runs a new model by dozens of small programs
        return _target_of(*without_partial(model, args, kwargs))


def _target_of(model: Callable, args: tuple, kwargs: dict[str, Any]) -> Target:
    given, (args, kwargs) = (args, kwargs), as_arguments(model, args, kwargs)
    with blaming_model(model, *given):
        sites = _trace(model, args, kwargs)
    warn_of_columns_as_rows(sites, named_arguments(model, *given), stacklevel=3)
    plate, sites = _on_all_rows(model, args, kwargs, sites)
    require_shapes(sites)
    require_whole_numbers(sites)
    latent = latent_sites(sites)
    supports = {name: _support(name, site) for name, site in latent.items()}
    point = {name: _unconstrained(site) for name, site in latent.items()}
    density = _with_arrays(NumPyroModel(model, args, kwargs, plate), point)
    _require_fixed_supports(density, point, supports)
    example = {name: jnp.zeros_like(u) for name, u in point.items()}
    target = Target.from_pytree(density, example).with_supports(supports)
    return target if plate is None else _with_rows(target, plate)


def _with_arrays(density: NumPyroModel, point: dict[str, Array]) -> NumPyroModel:
    """The density with arrays for plain numbers, so that new numbers do not compile again."""
    of = lambda given: NumPyroModel(density.model, given[0], given[1], density.plate)  # noqa: E731
    given = (density.args, density.kwargs)
    return of(with_numbers_as_arrays(given, of, point, lambda given: of(given)._sites()))


def _on_all_rows(
    model: Callable, args: tuple, kwargs: dict[str, Any], sites: Sites
) -> tuple[Plate | None, Sites]:
    """The subsampled plate, or None, and the model's sites on all rows."""
    plate = subsampled_plate(sites)
    program = model if plate is None else on_rows(model, plate, None)
    require_observations(lambda a, k: _trace(program, a, k), model, args, kwargs)
    if plate is None:
        return None, sites
    return plate, require_rows(lambda program: _trace(program, args, kwargs), model, plate)


def _with_rows(target: Target, plate: Plate) -> Target:
    """The same target with minibatches of the plate's rows."""
    whole = cast(PytreeDensity, target.density)
    density = PlateDensity(whole=whole, rows=None, size=plate.size, batch_size=plate.batch_size)
    return eqx.tree_at(lambda t: t.density, target, density)


def _support(name: str, site: dict[str, Any]) -> Support:
    from numpyro.distributions import constraints

    found = site["fn"].support
    while isinstance(found, type(constraints.independent(constraints.real, 1))):
        found = found.base_constraint
    if found in (constraints.real, constraints.real_vector, constraints.real_matrix):
        return Support("real")
    for kind in _BOUNDLESS:
        if found is getattr(constraints, kind):
            return Support(kind)
    lower, upper = (getattr(found, end, None) for end in ("lower_bound", "upper_bound"))
    if lower is None and upper is None:
        raise unsupported(f"sample site {name!r} has the support {found}", str(found))
    try:
        return within(lower, upper)
    except ValueError as error:
        raise ValueError(
            f"sample site {name!r} ({distribution_name(site['fn'])}) has the support {found}: {error}"
        ) from error


def _unconstrained(site: dict[str, Any]) -> Array:
    from numpyro.distributions import biject_to

    return biject_to(site["fn"].support).inv(site["value"])


def _require_fixed_supports(
    density: NumPyroModel, point: dict[str, Array], supports: dict[str, Support]
) -> None:
    """Raises `ValueError` unless our maps equal the model's, at two points far apart."""
    from numpyro.infer.util import constrain_fn

    for factor in (0.5, 1.5):
        moved = {name: factor * u + 0.1 for name, u in point.items()}
        theirs = constrain_fn(density.program, density.args, density.kwargs, moved)
        for name, support in supports.items():
            if not np.allclose(support(moved[name]), theirs[name], rtol=1e-4, atol=1e-5):
                raise ValueError(
                    f"sample site {name!r} has a support that depends on other parameters: write "
                    "it as a transformation of a parameter with a fixed support"
                )
