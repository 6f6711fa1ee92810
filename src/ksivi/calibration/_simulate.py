"""Parameters from a prior, data simulated from them, and the target of the data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ..targets import Target, from_numpyro

Simulate = Callable[[PRNGKeyArray], tuple[dict[str, Array], Target]]
"""A function from a key to parameters by name and the target of their simulated data."""


def simulate_numpyro(model: Callable, *args: Any, **kwargs: Any) -> Simulate:
    """Draws parameters from a NumPyro model's prior, and simulates its observed sites.

    Pass the arguments of one call with data. They fix the number of observations; the observed
    values are replaced. A model must use its data only as observed values: one that also reads them
    elsewhere, such as the last value of a series, is simulated wrongly. All targets share one
    function and the same shapes, so that `fit` compiles only once.

    ```python
    import numpyro, numpyro.distributions as dist

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    simulate = ksivi.calibration.simulate_numpyro(model, jnp.zeros(10))
    truth, target = simulate(jax.random.key(0))
    ```
    """
    from numpyro import handlers

    described = from_numpyro(model, *args, **kwargs).model
    observed = [] if described is None else list(described.observed())
    if not observed:
        raise ValueError("model must have observed sites to simulate, but it has none")

    def given(data: dict[str, Array], *args: Any, **kwargs: Any) -> Any:
        return _replacing(model, lambda name, _: data[name])(*args, **kwargs)

    def simulate(key: PRNGKeyArray) -> tuple[dict[str, Array], Target]:
        prior_key, data_key = jax.random.split(key)
        keys = dict(zip(observed, jax.random.split(data_key, len(observed)), strict=True))
        simulated = _replacing(
            model, lambda name, site: _like(keys[name], site["fn"], site["value"])
        )
        sites = handlers.trace(handlers.seed(simulated, prior_key)).get_trace(*args, **kwargs)
        values = {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}
        data = {name: values.pop(name) for name in observed}
        return values, from_numpyro(given, data, *args, **kwargs)

    return simulate


def _replacing(model: Callable, value: Callable[[str, dict[str, Any]], Array]) -> Callable:
    """The model with other values at its observed sites.

    NumPyro's `uncondition` would lose the shape of the data.
    """
    from numpyro.primitives import Messenger

    class Replacing(Messenger):
        def process_message(self, site: dict[str, Any]) -> None:
            if (
                site["type"] == "sample"
                and site["is_observed"]
                and type(site["fn"]).__name__ != "Unit"
            ):
                site["value"] = value(site["name"], site)

    return Replacing(model)


def _like(key: PRNGKeyArray, distribution: Any, data: Any) -> Array:
    """A draw with the shape of the data.

    Without a plate the distribution's shape may be smaller.
    """
    shape = jnp.shape(data)
    return distribution.expand(shape[: len(shape) - distribution.event_dim]).sample(key)
