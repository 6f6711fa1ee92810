"""Subsampled plates of NumPyro models: all of their rows, or those of a minibatch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from ._density import Rows

Sites = dict[str, dict[str, Any]]


class Plate(NamedTuple):
    """A plate of N rows, of which the model takes a few at a time."""

    name: str
    size: int
    batch_size: int


def subsampled_plate(sites: Sites) -> Plate | None:
    """The plate of which the model takes some rows, if there is one; refuses more than one."""
    found = [Plate(name, *site["args"]) for name, site in sites.items() if site["type"] == "plate"]
    found = [plate for plate in found if plate.batch_size not in (None, plate.size)]
    if len(found) > 1:
        names = " and ".join(repr(plate.name) for plate in found)
        raise ValueError(f"model must have at most one subsampled plate, got {names}: give all rows to all but one")
    return found[0] if found else None


def on_rows(model: Callable, plate: Plate, rows: Rows | None) -> Callable:
    """The model on these rows of the plate, its likelihood times N/|rows|; on all of them, as they are, for None."""
    from numpyro.primitives import Messenger

    class Chosen(Messenger):
        def process_message(self, msg):
            if msg["type"] == "plate" and msg["name"] == plate.name:
                size = msg["args"][0]
                msg["value"] = jnp.arange(size) if rows is None else _as_part(rows, plate, size)
                # NumPyro weighs by the rows that there are, and warns where the model has asked for another number.
                msg["args"] = (size, len(msg["value"]))

    return Chosen(model)


def _as_part(rows: Rows, plate: Plate, size: int) -> Rows:
    if size != plate.size:
        raise ValueError(f"plate {plate.name!r} must have one size, got {plate.size} and {size}")
    if len(rows) >= size:  # NumPyro takes the data as they are where there are as many
        raise ValueError(f"rows must be fewer than the {size} of plate {plate.name!r}, got {len(rows)}")
    return rows


def require_rows(trace: Callable[[Callable], Sites], model: Callable, plate: Plate) -> Sites:
    """The sites on all rows; refuses a model whose minibatches would not estimate its log density."""
    whole = _sites_on(trace, model, plate, None)
    part = _sites_on(trace, model, plate, jnp.arange(plate.batch_size))
    for sites, count in ((whole, plate.size), (part, plate.batch_size)):
        for name, site in _samples(sites).items():
            if (frame := _frame(site, plate)) is not None:
                _require_observed(name, site, plate)
                _require_count(name, site, frame.dim, count, plate)
    _require_the_same_outside(_samples(whole), _samples(part), plate)
    return whole


def _sites_on(trace: Callable[[Callable], Sites], model: Callable, plate: Plate, rows: Rows | None) -> Sites:
    try:
        return trace(on_rows(model, plate, rows))
    except (TypeError, ValueError) as error:
        count = plate.size if rows is None else len(rows)
        raise ValueError(f"{_by_rows(plate)}; with {count} rows it failed: {error}") from error


def _samples(sites: Sites) -> Sites:
    return {name: site for name, site in sites.items() if site["type"] == "sample"}


def _by_rows(plate: Plate) -> str:
    return (
        f"model must be given all {plate.size} rows of plate {plate.name!r}, and take from its data those of "
        "a minibatch, with numpyro.subsample(data, event_dim=0) or by the indices that the plate gives"
    )


def _frame(site: dict[str, Any], plate: Plate) -> Any:
    """The plate as the site is in it; None where it is not."""
    return next((frame for frame in site["cond_indep_stack"] if frame.name == plate.name), None)


def _require_observed(name: str, site: dict[str, Any], plate: Plate) -> None:
    if not site["is_observed"]:
        raise ValueError(
            f"sample site {name!r} is a parameter inside the subsampled plate {plate.name!r}: those of rows outside "
            "a minibatch would have no density; give the plate all rows, or take the site out of it"
        )


def _require_count(name: str, site: dict[str, Any], dim: int, count: int, plate: Plate) -> None:
    """A value with as many rows as the plate, unless it is one for all."""
    shape, axis = jnp.shape(site["value"]), dim - site["fn"].event_dim
    if len(shape) >= -axis and shape[axis] != count:
        raise ValueError(f"{_by_rows(plate)}; with {count} rows sample site {name!r} has {shape[axis]}")


def _require_the_same_outside(whole: Sites, part: Sites, plate: Plate) -> None:
    for name, site in whole.items():
        if _frame(site, plate) is None and jnp.shape(site["value"]) != jnp.shape(part[name]["value"]):
            raise ValueError(
                f"sample site {name!r} is outside the subsampled plate {plate.name!r}, and has the shape of its rows, "
                f"{jnp.shape(part[name]['value'])} in a minibatch: put it inside, so that it is weighed"
            )
