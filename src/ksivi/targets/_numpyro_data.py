"""The observed sites of NumPyro models: with other values, or drawn again."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

Site = dict[str, Any]


def is_data(site: Site) -> bool:
    """Whether the site is observed data; a factor is not, since its value is empty."""
    return site["type"] == "sample" and site["is_observed"] and not is_factor(site)


def with_observed(model: Callable, change: Callable[[Site], None]) -> Callable:
    """The model, in which `change` may change each observed site before it has its value."""
    from numpyro.primitives import Messenger

    class Observed(Messenger):
        def process_message(self, msg: Site) -> None:
            if is_data(msg):
                change(msg)

    return Observed(model)


def with_values(model: Callable, values: dict[str, Array]) -> Callable:
    """The model with these values at its observed sites."""
    return with_observed(model, lambda site: site.update(value=values[site["name"]]))


def drawn_again(model: Callable) -> Callable:
    """The model whose observed sites are drawn from their distributions, in the shape of the data.

    NumPyro's `uncondition` would lose this shape.
    """
    again = {"is_observed": False, "value": None}
    return with_observed(model, lambda site: site.update(again, fn=like_data(site)))


def like_data(site: Site) -> Any:
    """The distribution of the site, with the shape of its data.

    Without a plate the distribution's own shape may be smaller.
    """
    distribution, shape = site["fn"], jnp.shape(site["value"])
    rows = shape[: len(shape) - distribution.event_dim]
    return distribution.expand(jnp.broadcast_shapes(rows, distribution.batch_shape))


def is_improper(site: Site) -> bool:
    """Whether the site is a parameter whose prior has no integral and cannot be drawn from."""
    distribution: Any = site.get("fn")
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return type(distribution).__name__ == "ImproperUniform"


def is_factor(site: Site) -> bool:
    return site["type"] == "sample" and type(site["fn"]).__name__ == "Unit"
