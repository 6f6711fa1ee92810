"""Subsampled plates of NumPyro models: all rows of a plate, or the rows of a minibatch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from ._density import AbstractDensity, RowIndices, uniform_rows
from ._model import AbstractModel
from ._pytree import PytreeDensity

Sites = dict[str, dict[str, Any]]


class Plate(NamedTuple):
    """A plate of `size` rows, of which the model uses `batch_size` at a time."""

    name: str
    size: int
    batch_size: int


class PlateDensity(AbstractDensity):
    """The log density of a model with a subsampled plate. The model itself weighs the rows."""

    whole: PytreeDensity
    rows: RowIndices | None
    size: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    @property
    def given_as(self) -> str:
        return self.whole.given_as

    def explain(self, x):
        return self.whole.explain(x)

    @property
    def model(self) -> AbstractModel | None:
        return self.whole.model

    @property
    def is_minibatched(self) -> bool:
        return True

    @property
    def num_rows(self) -> int:
        return self.size

    def draw_rows(self, keys):
        return uniform_rows(keys, self.batch_size, self.size)

    def on_rows(self, rows):
        return eqx.tree_at(lambda d: d.rows, self, rows, is_leaf=lambda leaf: leaf is None)

    def value(self, x):
        return self._estimate().value(x)

    def value_and_score(self, x):
        return self._estimate().value_and_score(x)

    def score(self, x):
        return self._estimate().score(x)

    def _estimate(self) -> PytreeDensity:
        """The density on the chosen rows, or on all rows."""
        if self.rows is None:
            return self.whole
        chosen = lambda d: d.log_density.rows  # noqa: E731
        return eqx.tree_at(chosen, self.whole, self.rows, is_leaf=lambda leaf: leaf is None)


def subsampled_plate(sites: Sites) -> Plate | None:
    """The plate that is subsampled, or None. Raises `ValueError` if there are several."""
    found = [Plate(name, *site["args"]) for name, site in sites.items() if site["type"] == "plate"]
    found = [plate for plate in found if plate.batch_size not in (None, plate.size)]
    for plate in found:
        if plate.batch_size > plate.size:
            raise ValueError(
                f"plate {plate.name!r} must have a subsample_size of at most its {plate.size} rows, "
                f"got {plate.batch_size}"
            )
    if len(found) > 1:
        names = " and ".join(repr(plate.name) for plate in found)
        raise ValueError(
            f"model must have at most one subsampled plate, got {names}: use all rows in the others"
        )
    return found[0] if found else None


def on_all_rows(model: Callable) -> Callable:
    """The model on all rows of every plate: predictions are for as many rows as are given."""
    from numpyro.primitives import Messenger

    class AllRows(Messenger):
        def process_message(self, msg):
            if msg["type"] == "plate":
                size = msg["args"][0]
                msg["value"], msg["args"] = jnp.arange(size), (size, size)

    return AllRows(model)


def on_rows(model: Callable, plate: Plate, rows: RowIndices | None) -> Callable:
    """The model on these rows of the plate, its likelihood times N/|rows|; all rows for None."""
    from numpyro.primitives import Messenger

    class ChooseRows(Messenger):
        def process_message(self, msg):
            if msg["type"] == "plate" and msg["name"] == plate.name:
                size = msg["args"][0]
                msg["value"] = (
                    jnp.arange(size) if rows is None else _as_minibatch(rows, plate, size)
                )
                # NumPyro weighs by this number, and warns if the model asked for another one.
                msg["args"] = (size, len(msg["value"]))

    return ChooseRows(model)


def _as_minibatch(rows: RowIndices, plate: Plate, size: int) -> RowIndices:
    if size != plate.size:
        raise ValueError(f"plate {plate.name!r} must have one size, got {plate.size} and {size}")
    if len(rows) >= size:  # NumPyro would ignore the indices and use the data as they are
        raise ValueError(
            f"rows must be fewer than the {size} of plate {plate.name!r}, got {len(rows)}"
        )
    return rows


def require_rows(trace: Callable[[Callable], Sites], model: Callable, plate: Plate) -> Sites:
    """The sites on all rows. Raises `ValueError` if minibatches would not estimate the density."""
    whole = _sites_on(trace, model, plate, None)
    part = _sites_on(trace, model, plate, jnp.arange(plate.batch_size))
    for sites, count in ((whole, plate.size), (part, plate.batch_size)):
        for name, site in _samples(sites).items():
            if (frame := _frame(site, plate)) is not None:
                _require_observed(name, site, plate)
                _require_count(name, site, frame.dim, count, plate)
    _require_fixed_shapes_outside(_samples(whole), _samples(part), plate)
    return whole


def _sites_on(
    trace: Callable[[Callable], Sites], model: Callable, plate: Plate, rows: RowIndices | None
) -> Sites:
    try:
        return trace(on_rows(model, plate, rows))
    except (TypeError, ValueError) as error:
        count = plate.size if rows is None else len(rows)
        raise ValueError(f"{_advice(plate)}; with {count} rows it failed: {error}") from error


def _samples(sites: Sites) -> Sites:
    return {name: site for name, site in sites.items() if site["type"] == "sample"}


def _advice(plate: Plate) -> str:
    return (
        f"model must be given all {plate.size} rows of plate {plate.name!r}, and must select the "
        "rows of a minibatch itself, with numpyro.subsample(data, event_dim=0) or with the indices "
        "that the plate returns"
    )


def _frame(site: dict[str, Any], plate: Plate) -> Any:
    """The frame of the plate in the site's stack, or None if the site is outside the plate."""
    return next((frame for frame in site["cond_indep_stack"] if frame.name == plate.name), None)


def _require_observed(name: str, site: dict[str, Any], plate: Plate) -> None:
    if not site["is_observed"]:
        raise ValueError(
            f"sample site {name!r} is a parameter inside the subsampled plate {plate.name!r}: the "
            "parameters of rows outside a minibatch would have no density; use all rows in the "
            "plate, or move the site out of it"
        )


def _require_count(name: str, site: dict[str, Any], dim: int, count: int, plate: Plate) -> None:
    """Raises `ValueError` unless the value has one row per row of the plate, or is shared."""
    shape, axis = jnp.shape(site["value"]), dim - site["fn"].event_dim
    if len(shape) >= -axis and shape[axis] != count:
        raise ValueError(
            f"{_advice(plate)}; with {count} rows sample site {name!r} has {shape[axis]}"
        )


def _require_fixed_shapes_outside(whole: Sites, part: Sites, plate: Plate) -> None:
    for name, site in whole.items():
        shapes = jnp.shape(site["value"]), jnp.shape(part[name]["value"])
        if _frame(site, plate) is None and shapes[0] != shapes[1]:
            raise ValueError(
                f"sample site {name!r} is outside the subsampled plate {plate.name!r}, but its "
                f"shape depends on the rows, {shapes[1]} in a minibatch: move it inside the plate, "
                "so that it is weighed"
            )
