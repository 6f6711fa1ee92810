"""What a NumPyro model must be like, and messages that name the site or the argument at fault."""

import contextlib
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._core.checks import brief, describe, holds_numbers
from ._explain import Term, explain_terms, name_missing
from ._frames import is_frame, text_columns, with_arrays
from ._numbers import with_plain_integers
from ._plates import Sites

Trace = Callable[[tuple, dict[str, Any]], Sites]


def as_arguments(model: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict]:
    """The arguments with JAX arrays. A data frame becomes a dict of arrays, by column."""
    converted = with_plain_integers(with_arrays((args, kwargs)))
    for name, argument in named_arguments(model, *converted).items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(argument):
            where = f"{name}{jax.tree_util.keystr(path)}"
            if isinstance(leaf, np.ndarray) and not holds_numbers(leaf.dtype):
                raise ValueError(
                    f"argument {where!r} of the model must hold numbers, got {describe(leaf)}; make "
                    "text into integers"
                )
            if not isinstance(leaf, jax.Array | np.ndarray) and not _is_hashable(leaf):
                raise ValueError(
                    f"argument {where!r} of the model must be arrays or plain values, got "
                    f"{describe(leaf)}; give a NumPy array, and make text into integers"
                )
    return jax.tree.map(_as_array, converted)


def named_arguments(model: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names that the model gives them."""
    try:
        names = [*inspect.signature(model).bind_partial(*args).arguments]
    except (TypeError, ValueError):
        names = []
    if len(names) != len(args):  # *args, or more than the model takes
        names = [f"args[{i}]" for i in range(len(args))]
    return dict(zip(names, args, strict=True)) | kwargs


@contextlib.contextmanager
def blaming_model(model: Callable, args: tuple, kwargs: dict[str, Any]) -> Iterator[None]:
    """Turns any error of the model into a `ValueError` that says what its arguments have to do."""
    try:
        yield
    except Exception as error:
        named = named_arguments(model, args, kwargs)
        hints = [f"argument {one}" for one in name_missing(with_arrays(named))]
        for name, argument in named.items():
            if is_frame(argument):
                hints.append(_about_frame(name, argument))
            elif isinstance(argument, list):
                hints.append(f"{name!r} is a list: give numpy.array({name}) for an array")
        said = f"model failed{_line_of(model, error)}: {brief(error)}"
        raise ValueError("; ".join([said, *hints])) from error


def _line_of(model: Callable, error: Exception) -> str:
    """The line of the model's own file that failed: NumPyro's errors do not name the site."""
    file = getattr(getattr(model, "__code__", None), "co_filename", None)
    lines = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    if not lines or not lines[-1].line:
        return ""
    return f" in line {lines[-1].lineno}, `{lines[-1].line.strip().rstrip(',')}`"


def _about_frame(name: str, frame: Any) -> str:
    text = text_columns(frame)
    left = f", without {', '.join(text)}, which are not numbers" if text else ""
    return (
        f"{name!r} is a data frame, which the model gets as a dict of arrays by column{left}; for a "
        f"matrix give {name}.to_numpy(), and for its number of rows {_num_rows(name, frame)}"
    )


def _num_rows(name: str, frame: Any) -> str:
    """What gives the number of rows of a data frame inside of the model."""
    return f"len({name}[{next(iter(with_arrays(frame)), 'column')!r}])"


def warn_of_columns_as_rows(sites: Sites, arguments: dict[str, Any], stacklevel: int) -> None:
    """Warns if a plate of data has a row for each column of a data frame, where it may mean rows.

    The model gets a dict, of which `len` is the number of columns.
    """
    frames = {name: frame for name, frame in arguments.items() if is_frame(frame)}
    # A frame of the stack has the size of a minibatch, and a hidden plate has no site.
    sizes = {name: site["args"][0] for name, site in sites.items() if site["type"] == "plate"}
    observed = [site for site in sites.values() if site["type"] == "sample" and site["is_observed"]]
    for name, frame in frames.items():
        columns = with_arrays(frame)
        num_rows = len(next(iter(columns.values()), ()))
        for site in observed:
            around = site["cond_indep_stack"]
            plates = {one.name: sizes.get(one.name, one.size) for one in around}
            plate = next((one for one, size in plates.items() if size == len(columns)), None)
            if plate is not None and num_rows not in {*plates.values(), *jnp.shape(site["value"])}:
                warnings.warn(
                    f"plate {plate!r} has {len(columns)} rows, the number of columns of the data frame "
                    f"{name!r}, which has {num_rows} rows. The model gets a dict of arrays by column: "
                    f"if the plate is over rows, use {_num_rows(name, frame)} for len({name})",
                    stacklevel=stacklevel + 1,
                )


def require_observations(
    trace: Trace, model: Callable, args: tuple, kwargs: dict[str, Any]
) -> None:
    """Raises `ValueError` if a site to infer would be observed, were its argument not None.

    **Arguments:**

    - `trace`: the sites of the model, on all rows, from its arguments.
    """
    given = _with_defaults(model, args, kwargs)
    empty = [name for name, value in given.items() if value is None]
    sites = _shapes_only(trace, args, kwargs) if empty else {}
    for name in [name for name, site in sites.items() if _is_latent(site)]:
        data = jnp.zeros(jnp.shape(sites[name]["value"]), jnp.result_type(sites[name]["value"]))
        for argument in empty:
            found = _shapes_only(trace, *_called_with(model, given | {argument: data}))
            if name in found and not _is_latent(found[name]):
                raise ValueError(_no_data(name, argument, model, given))


def _with_defaults(model: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of the call by name; empty if the model does not tell their names."""
    try:
        bound = inspect.signature(model).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


def _called_with(model: Callable, named: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    bound = inspect.signature(model).bind_partial()
    bound.arguments.update(named)
    return bound.args, bound.kwargs


def _shapes_only(trace: Trace, args: tuple, kwargs: dict[str, Any]) -> Sites:
    """The sites, without computing their values; empty if the model fails."""
    found: list[Sites] = [{}]
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax.eval_shape(lambda: found.append(trace(args, kwargs)))
    return found[-1]


def _no_data(site: str, argument: str, model: Callable, given: dict[str, Any]) -> str:
    others = ", ".join(name for name, value in given.items() if value is not None)
    called = (
        f"{getattr(model, '__name__', 'model')}({others}{', ' if others else ''}{argument}=None)"
    )
    return (
        f"sample site {site!r} has no data, because the argument {argument!r} of the model is "
        f"None: give {argument}=; or, to infer {site!r} as a parameter, give a model without that "
        f"argument, such as {f'lambda {others}'.strip()}: {called}"
    )


def require_shapes(sites: Sites) -> None:
    """Raises `ValueError` unless the data of each site have the shape of its distribution.

    Either may be repeated to the shape of the other. If both would be, a row of data would meet
    every row of the distribution, as a column meets a row.
    """
    for name, site in sites.items():
        if site["type"] != "sample" or not site["is_observed"]:
            continue
        if not holds_numbers(_dtype_of(site["value"])):
            raise ValueError(
                f"sample site {name!r} must have numbers for data, got {describe(site['value'])}"
            )
        data, expected = jnp.shape(site["value"]), tuple(site["fn"].shape())
        try:
            common = jnp.broadcast_shapes(data, expected)
        except ValueError:
            common = None
        if common not in (data, expected):
            raise ValueError(
                f"sample site {name!r} has data of shape {data}, but its distribution has shape "
                f"{expected}: the shapes must agree"
            )


def require_whole_numbers(sites: Sites) -> None:
    """Raises `ValueError` if a discrete site has fractions for data: old NumPyro takes them."""
    terms = []
    for name, site in sites.items():
        if site["type"] != "sample" or not site["is_observed"] or _is_masked(site["fn"]):
            continue
        if site["fn"].support is not None and site["fn"].support.is_discrete:
            values = jnp.where(jnp.asarray(site["value"]) % 1 == 0, 0.0, -jnp.inf)
            terms.append(Term(name, values, site["value"], distribution_name(site["fn"])))
    if said := explain_terms(terms):
        raise ValueError(f"the data of a discrete site must be whole numbers: {said}")


def _is_masked(distribution: Any) -> bool:
    return type(distribution).__name__ == "MaskedDistribution"


def latent_sites(sites: Sites) -> Sites:
    """The sites to infer. Raises `ValueError` if there are none, or if one is not continuous."""
    for name, site in sites.items():
        if site["type"] == "param":
            raise ValueError(
                f"param {name!r} has no prior: make it a sample site, because ksivi approximates "
                "posteriors"
            )
    latent = {name: site for name, site in sites.items() if _is_latent(site)}
    for name, site in latent.items():
        if distribution_name(site["fn"]) == "Delta":
            raise ValueError(
                f"sample site {name!r} has no density (Delta): use numpyro.deterministic"
            )
        if site["fn"].support is not None and site["fn"].support.is_discrete:
            raise ValueError(
                f"sample site {name!r} is discrete ({distribution_name(site['fn'])}), and ksivi "
                "needs gradients: sum it out of the model, a mixture for example with "
                "dist.MixtureSameFamily; infer={'enumerate': ...} is not supported"
            )
    if not latent:
        has_any = any(site["type"] == "sample" for site in sites.values())
        found = "all of its sample sites are observed" if has_any else "it has no sample sites"
        raise ValueError(f"model must have a parameter to infer, but {found}")
    return latent


def distribution_name(distribution: Any) -> str:
    """The name that users write: without expansions, masks and parametrisations."""
    while hasattr(distribution, "base_dist") and type(distribution).__name__ in (
        "ExpandedDistribution",
        "Independent",
        "MaskedDistribution",
    ):
        distribution = distribution.base_dist
    return type(distribution).__name__.removesuffix("Probs").removesuffix("Logits")


def explain_sites(sites: Sites, arguments: dict[str, Any]) -> str:
    """Which sites are not finite, in which rows, and which arguments have NaN."""
    terms = []
    for name, site in sites.items():
        if site["type"] == "sample":
            kind, is_data = distribution_name(site["fn"]), site["is_observed"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = site["fn"].log_prob(site["value"])
            data = site["value"] if is_data and kind != "Unit" else None
            terms.append(Term(name, values, data, "" if kind == "Unit" else kind))
    said = explain_terms(terms)
    missing = [] if said.endswith("nan") else name_missing(arguments)
    return "; ".join([*([said] if said else []), *(f"argument {one}" for one in missing)])


def _is_latent(site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _dtype_of(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _as_array(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf
