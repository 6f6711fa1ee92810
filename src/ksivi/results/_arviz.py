"""Draws for other tools: ArviZ, and tables with one column per number."""

import warnings
from typing import Any

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_flag
from .._core.compile import jit
from ..families import SemiImplicit, exact_log_normals
from ..targets import Affine, Coordinates, Target
from ._about import Attributes, library_attributes
from ._host import Family, on_host
from ._names import element_name

_NUM_MIXING, _AT_ONCE = 1_000, 100
_SIMULATED = ("posterior_predictive", "prior", "prior_predictive")
_UNKNOWN = Coordinates({}, {})
Group = dict[str, np.ndarray]


def densities(
    key: PRNGKeyArray,
    x: Float[Array, "n d"],
    family: Family,
    coordinates: Affine | None,
    target: Target | None,
) -> Group:
    """Log densities at the draws x that this key gives.

    `lp` is the target's, `log_q` the sampler's, and `log_weight` is their difference.
    """
    found: Group = {}
    mixture = on_host(family, coordinates)
    if mixture is not None:
        found["log_q"] = mixture.log_density(np.asarray(x, np.float64))
    elif isinstance(family, SemiImplicit):
        found["log_q"] = np.asarray(_log_q(key, family, coordinates, len(x)))
    if target is not None and target.has_log_density and target.host_rows is None:
        found["lp"] = np.asarray(_log_densities(target, x))
    if len(found) == 2:
        found["log_weight"] = found["lp"] - found["log_q"]
    return found


def require_groups(wanted: dict[str, bool], target: Target | None) -> None:
    """Raises `ValueError` if a wanted group needs a model, and the target has none."""
    asked = [name for name, value in wanted.items() if as_flag(value, name)]
    drawn = [name for name in asked if name in _SIMULATED]
    if drawn and (target is None or target.model is None):
        raise ValueError(
            f"{drawn[0]} needs the model: give a target that is made from a NumPyro or PyMC model; "
            "a loaded posterior has no target, and other targets have no model"
        )


def simulated(
    key: PRNGKeyArray, named: dict[str, Array], target: Target | None, wanted: dict[str, bool]
) -> dict[str, dict[str, Any]]:
    """The wanted groups that the model simulates. `named` are the draws from the posterior."""
    groups: dict[str, dict[str, Any]] = {}
    if target is None or target.model is None:
        return groups
    data_key, prior_key = jax.random.split(jax.random.fold_in(key, 2))
    if wanted["posterior_predictive"]:
        groups["posterior_predictive"] = target.model.predictive(data_key, named)
    if wanted["prior"] or wanted["prior_predictive"]:
        n = len(next(iter(named.values())))
        parameters, data = target.model.prior_predictive(prior_key, n)
        drawn = {"prior": parameters, "prior_predictive": data}
        groups |= {name: group for name, group in drawn.items() if wanted[name]}
    return groups


def to_arviz(
    named: dict[str, Array],
    stats: Group,
    target: Target | None,
    more: dict[str, dict[str, Any]],
    about: Attributes,
) -> Any:
    """The draws by name, their statistics, and the model's log likelihood and data, for ArviZ.

    **Arguments:**

    - `more`: further groups.
    - `about`: attributes of the group `posterior`.
    """
    groups: dict[str, dict[str, Any]] = {"posterior": dict(named), "sample_stats": dict(stats)}
    known = _UNKNOWN
    if target is not None and target.model is not None:
        groups["posterior"] |= target.model.deterministics(named)
        groups["log_likelihood"] = target.model.log_likelihood(named)
        groups["observed_data"] = target.model.observed()
        known = target.model.coordinates()
    arrays = {name: _arrays(group) for name, group in (groups | more).items() if group}
    data = _assemble(arrays, known)
    for name in arrays:
        data[name].attrs.update(about if name == "posterior" else library_attributes())
    return data


def leave_one_out(
    log_likelihood: Float[np.ndarray, "n m"], reff: float = 1.0
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"], float]:
    """elpd and Pareto k-hat of m observations by PSIS-LOO, and the largest good k-hat.

    **Arguments:**

    - `reff`: the effective number of the draws, as a share of n: 1 if they are independent.
    """
    draws = {"number": np.arange(len(log_likelihood), dtype=float)}
    data = _assemble({"posterior": draws, "log_likelihood": {"observed": log_likelihood}})
    import arviz

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large k-hats, which are returned
        found = arviz.loo(data, pointwise=True, reff=reff)
    elpd = found.elpd_i if hasattr(found, "elpd_i") else found.loo_i
    return np.asarray(elpd).ravel(), np.asarray(found.pareto_k).ravel(), float(found.good_k)


def named_columns(draws: dict[str, Any]) -> Group:
    """One column per number, with a name such as theta[2]."""
    columns = {}
    for name, values in draws.items():
        values = np.asarray(values, np.float64)
        for place in np.ndindex(values.shape[1:]):
            label = element_name(name, place)
            if label in columns:
                raise ValueError(f"two parameters have the name {label}: rename one of them")
            columns[label] = values[(slice(None), *place)]
    return columns


def require_finite(draws: dict[str, Any]) -> None:
    """Raises `ValueError` with the first parameter of which no draw is finite.

    Single draws may overflow.
    """
    for name, values in draws.items():
        if not np.isfinite(np.asarray(values)).any(axis=0).all():
            raise ValueError(
                f"the draws of this posterior are not finite: {name!r} is infinite or NaN in all "
                f"{len(values):,} draws"
            )


def _assemble(groups: dict[str, Group], known: Coordinates = _UNKNOWN) -> Any:
    """The groups as ArviZ data, with the model's dimensions and coordinates."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "to_arviz and LOO need ArviZ: pip install 'ksivi[arviz]'; compare_models needs none "
            "with loo=False"
        ) from error
    is_old = arviz.__version__.startswith("0.")
    datasets = {}
    for name, group in groups.items():
        first: list[str] = ["chain", "draw"]
        if name == "observed_data":
            first = []
        elif not is_old and name != "log_likelihood":
            # `arviz.loo` accepts only the dimensions chain and draw.
            first = ["sample"]
        if "chain" in first:
            group = {site: values[None] for site, values in group.items()}
        dims = {
            site: _dims(site, values.shape[len(first) :], known) for site, values in group.items()
        }
        datasets[name] = arviz.dict_to_dataset(
            group,
            coords=known.labels,
            dims=dims,
            **{"default_dims" if is_old else "sample_dims": first},
        )
    if is_old:
        return arviz.InferenceData(**datasets)
    import xarray  # ArviZ needs it

    return xarray.DataTree.from_dict(datasets)


def _dims(name: str, shape: tuple[int, ...], known: Coordinates) -> list[str]:
    """A dimension for each axis: the model's if its labels fit, otherwise ArviZ's default.

    An axis of an unconstrained simplex is shorter than its labels. After `pymc.set_data` old draws
    may have other shapes than the model.
    """
    dims = [f"{name}_dim_{i}" for i in range(len(shape))]
    for i, (dim, size) in enumerate(zip(known.dims.get(name, ()), shape, strict=False)):
        if dim is not None and len(known.labels[dim]) == size:
            dims[i] = dim
    return dims


def _arrays(group: dict[str, Any]) -> Group:
    return {name: np.asarray(values) for name, values in group.items()}


@jit
def _log_q(
    key: PRNGKeyArray, family: SemiImplicit, coordinates: Affine | None, n: int
) -> Float[Array, " n"]:
    """log q̂ at the draws of this key.

    The K + 1 values of z include the draw's own: without it q̂ is too low.
    """
    others = family.mixing.sample(jax.random.fold_in(key, 1), _NUM_MIXING, family.dtype)

    def one(noise: tuple[Array, Array]) -> Array:
        alone = jax.tree.map(lambda a: a[None], noise)
        return family.transport_and_log_prob(alone, others, exact_log_normals)[1][0]

    noise = jax.tree.map(lambda a: a[:n], family.noise(key, family.draw_size(n)))
    log_q = lax.map(one, noise, batch_size=_AT_ONCE)
    return log_q if coordinates is None else log_q - coordinates.log_det()


@jit
def _log_densities(target: Target, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    return lax.map(target.log_density, x, batch_size=_AT_ONCE)
