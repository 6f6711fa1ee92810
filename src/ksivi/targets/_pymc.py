"""Targets from PyMC models."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, Scalar

from .._core.checks import attributing_errors_to, brief, describe
from ._explain import Term, explain_terms
from ._model import AbstractModel, Coordinates, NamedDraws, require_proper
from ._target import Target
from ._unsupported import unsupported
from .supports import Support, greater_than, interval, within

Outputs = Callable[..., tuple[Array, ...]]
_IMPROPER = ("Flat", "HalfFlat")


class PyMCModel(AbstractModel):
    """log p(parameters, data) of a PyMC model on its unconstrained scale, compiled to JAX."""

    supports: tuple[Support, ...]
    model: Any = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    log_density: Callable = eqx.field(static=True)

    def __call__(self, parameters: dict[str, Array]) -> Scalar:
        with _same_precision():
            return self.log_density([parameters[name] for name in self.names])

    def explain(self, parameters):
        model, data = self.model, self.observed()
        random = [*model.free_RVs, *model.observed_RVs]
        outputs = model.logp(random, jacobian=False, sum=False)
        outputs += model.replace_rvs_by_values(model.potentials)
        with _same_precision():
            values = _compiled(model, outputs)(*(parameters[name] for name in self.names))
        return explain_terms(
            Term(one.name, value, data.get(one.name), "" if one in model.potentials else _kind(one))
            for one, value in zip([*random, *model.potentials], values, strict=True)
        )

    def deterministics(self, draws):
        names = [variable.name for variable in self.model.deterministics]
        return self._at(draws, names, self.model.replace_rvs_by_values(self.model.deterministics))

    def log_likelihood(self, draws):
        observed = self.model.observed_RVs
        names = [variable.name for variable in observed]
        with _explaining("the log likelihood of the model", "set the data of the fit again first"):
            return self._at(draws, names, self.model.logp(observed, sum=False))

    def observed(self):
        values = self.model.rvs_to_values
        return {
            variable.name: np.asarray(values[variable].eval())
            for variable in self.model.observed_RVs
        }

    def predictive(self, key, draws, *args, **kwargs):
        import pymc

        if args or kwargs:
            raise ValueError("a PyMC model takes no arguments: set new data with pymc.set_data")
        # As inference data they would be joined with the observed data, which can have other shapes.
        options = {"progressbar": False, "return_inferencedata": False}
        remedy = "give the observed variable dims, or shape=x.shape, where x is the pymc.Data"
        with _explaining("predictive", remedy):
            found = pymc.sample_posterior_predictive(
                self._stored(draws), self.model, random_seed=_seed(key), **options
            )
        return {name: np.asarray(values)[0] for name, values in found.items()}

    def prior_predictive(self, key, n):
        import pymc

        free, observed = self.model.free_RVs, self.model.observed_RVs
        require_proper(self)
        latent = [one.name for one in (*free, *self.model.deterministics)]
        data = [one.name for one in observed]
        drawn = pymc.sample_prior_predictive(
            n, self.model, [*latent, *data], random_seed=_seed(key), return_inferencedata=False
        )
        arrays = {name: jnp.asarray(drawn[name]) for name in (*latent, *data)}
        return {name: arrays[name] for name in latent}, {name: arrays[name] for name in data}

    def improper(self):
        return tuple(one.name for one in self.model.free_RVs if _kind(one) in _IMPROPER)

    def coordinates(self):
        lengths = self.model.dim_lengths
        labels = {
            dim: np.arange(lengths[dim].eval()) if given is None else np.asarray(given)
            for dim, given in self.model.coords.items()
        }
        dims = {
            name: tuple(of)
            for name, of in self.model.named_vars_to_dims.items()
            if all(dim is None or dim in labels for dim in of)
        }
        return Coordinates(labels, dims)

    def _stored(self, draws: NamedDraws) -> Any:
        """The draws as PyMC would have stored them.

        Without the coordinates and the data of the model, PyMC would take variables that depend on
        them for changed, and draw them from their prior again.
        """
        import arviz

        shared, dims = _shared(self.model), self.coordinates().dims
        groups: dict[str, Any] = {
            "posterior": {name: np.asarray(values)[None] for name, values in draws.items()},
            "constant_data": {one.name: np.asarray(one.get_value()) for one in shared},
        }
        about: dict[str, Any] = {
            "coords": {
                dim: np.asarray(of) for dim, of in self.model.coords.items() if of is not None
            },
            "dims": {name: list(of) for name, of in dims.items()},
        }
        if arviz.__version__.startswith("0."):
            return arviz.from_dict(**groups, **about)
        return arviz.from_dict(groups, **about)

    def _at(self, draws: NamedDraws, names: list[str], outputs: list[Any]) -> NamedDraws:
        """Variables of the model, at each draw."""
        if not names:
            return {}
        with _same_precision():
            function = _compiled(self.model, outputs)
            parts = [
                jax.vmap(to.inverse)(jnp.asarray(draws[name]))
                for name, to in zip(self.names, self.supports, strict=True)
            ]
            return dict(zip(names, jax.vmap(function)(*parts), strict=True))


@contextlib.contextmanager
def _explaining(name: str, remedy: str) -> Iterator[None]:
    """Turns an error of PyMC into one that says what to do after `pymc.set_data`."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{name} failed: {brief(error)}; if data were changed with pymc.set_data, {remedy}"
        ) from error


def _shared(model: Any) -> list[Any]:
    """The data of a model that `pymc.set_data` can change."""
    return [one for one in model.data_vars if hasattr(one, "get_value")]


def from_pymc(model: Any) -> Target:
    """The posterior of a PyMC model, compiled to JAX by PyTensor.

    Parameters keep their names and shapes. `posterior.sample` draws on the unconstrained scale, and
    `posterior.draws` on the model's scale. Supported transforms are log, interval, simplex and
    ordered. Other transforms and discrete parameters raise `ValueError`, which says what to write
    instead.

        with pymc.Model() as model:
            slope = pymc.Normal("slope", 0, 1)
            noise = pymc.HalfNormal("noise", 1)
            pymc.Normal("y", slope * x, noise, observed=y)

        target = ksivi.from_pymc(model)
    """
    try:
        import pymc
    except ImportError as error:
        raise ImportError("from_pymc needs PyMC: pip install 'ksivi[pymc]'") from error
    if not isinstance(model, pymc.Model):
        raise ValueError(f"model must be a pymc.Model, got {describe(model)}")
    _require_continuous(model)
    supports = {variable.name: _support(model, variable) for variable in model.free_RVs}
    with attributing_errors_to("model"):
        example = _example(model)
    with _same_precision():
        from pymc.sampling.jax import get_jaxified_logp

        with attributing_errors_to("model"):
            density = get_jaxified_logp(model)
        _require_maps(model, example, supports)
    names = tuple(variable.name for variable in model.free_RVs)
    behind = PyMCModel(tuple(supports[name] for name in names), model, names, density)
    return Target.from_pytree(behind, example).with_supports(supports)


def _example(model: Any) -> dict[str, Array]:
    """Where PyMC starts, unconstrained. A start at the edge of an interval is infinite: 0 instead."""
    start = model.initial_point()
    found = {one.name: start[model.rvs_to_values[one].name] for one in model.free_RVs}
    return {
        name: jnp.asarray(np.where(np.isfinite(u), u, 0.0), jnp.result_type(float))
        for name, u in found.items()
    }


def _seed(key: PRNGKeyArray) -> int:
    return int(jax.random.randint(key, (), 0, 2**31 - 1))


@contextlib.contextmanager
def _same_precision() -> Iterator[None]:
    """Keeps JAX's precision as it is: it is the user's choice.

    PyTensor switches JAX to double precision for the whole process. It also requests double
    precision in every operation, and in single precision JAX would warn about each of them.
    """
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        try:
            yield
        finally:
            jax.config.update("jax_enable_x64", before)


def _compiled(model: Any, outputs: list[Any]) -> Outputs:
    from pymc.sampling.jax import get_jaxified_graph

    values = [model.rvs_to_values[variable] for variable in model.free_RVs]
    return get_jaxified_graph(inputs=values, outputs=outputs)


def _require_continuous(model: Any) -> None:
    if not model.free_RVs:
        raise ValueError("model must have a parameter to infer, but it has none")
    for variable in model.free_RVs:
        if variable.dtype.startswith(("int", "uint", "bool")):
            raise ValueError(
                f"{variable.name!r} is discrete ({_kind(variable)}), and ksivi needs gradients: sum "
                "it out of the model, a mixture for example with pymc.Mixture, other parameters "
                "with pymc_extras.marginalize"
            )


def _kind(variable: Any) -> str:
    """The name of a variable's distribution, such as Poisson."""
    op = variable.owner.op
    return getattr(op, "_print_name", (type(op).__name__,))[0]


def _support(model: Any, variable: Any) -> Support:
    """The support that belongs to PyMC's transform; `_require_maps` compares the two."""
    transform = model.rvs_to_transforms[variable]
    if transform is None:
        return Support("real")
    if hasattr(transform, "args_fn"):
        ends = transform.args_fn(*variable.owner.inputs)
        return within(*(end.eval() if hasattr(end, "eval") else end for end in ends))
    known = {
        "log": greater_than(0.0),
        "logodds": interval(0.0, 1.0),
        "ordered": Support("ordered_vector"),
    }
    known["simplex"] = Support("softmax_simplex")
    if transform.name not in known:
        what = f"{variable.name!r} has the transform {transform.name!r}"
        raise unsupported(what, transform.name)
    return known[transform.name]


def _require_maps(model: Any, example: dict[str, Array], supports: dict[str, Support]) -> None:
    """Raises `ValueError` unless our maps equal the model's, at two points."""
    function = _compiled(model, model.replace_rvs_by_values(model.free_RVs))
    for shift in (0.3, -0.7):
        moved = {
            name: u + shift * (1 + jnp.arange(u.size).reshape(u.shape) / u.size)
            for name, u in example.items()
        }
        theirs = function(*moved.values())
        for (name, u), value in zip(moved.items(), theirs, strict=True):
            if not np.allclose(supports[name](u), value, rtol=1e-4, atol=1e-5):
                raise ValueError(
                    f"{name!r} has a support that depends on other parameters, or an unusual "
                    "transform: write it as a transformation of a parameter with a fixed support"
                )
