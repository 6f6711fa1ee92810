"""Parameters from a prior, data simulated from them, and the target of the data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._core.checks import attributing_errors_to, describe, require_callable
from ..results import Posterior
from ..targets import (
    Target,
    from_numpyro,
    given_both,
    like_data,
    on_all_rows,
    require_model,
    require_proper,
    warn_of_factors,
    with_observed,
    with_values,
)

Simulate = Callable[[PRNGKeyArray], tuple[dict[str, Array], Target]]
"""A function from a key to parameters by name and the target of their simulated data."""


def simulate_numpyro(model: Callable, *args: Any, **kwargs: Any) -> Simulate:
    """Draws parameters from a NumPyro model's prior, and simulates its observed sites.

    Pass the arguments of one call with data. They fix the number of observations; the observed
    values are replaced. A model must use its data only as observed values: one that also reads them
    elsewhere, such as the last value of a series, is simulated wrongly. Every plate uses all of its
    rows. An improper prior raises `ValueError`. Factors cannot be simulated: a warning names them,
    because ranks are then not uniform. All targets share one function and the same shapes, so that
    `fit` compiles only once.

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

    described = require_model(from_numpyro(model, *args, **kwargs).model, "simulate_numpyro")
    observed, factors = list(described.observed()), described.factors()
    if not observed:
        raise ValueError(
            "model must have observed sites to simulate, but it has none: write the likelihood as a "
            "distribution with obs="
        )
    require_proper(described)
    warn_of_factors(described, stacklevel=2)

    def given(data: dict[str, Array], *args: Any, **kwargs: Any) -> Any:
        return with_values(on_all_rows(model), data)(*args, **kwargs)

    def simulate(key: PRNGKeyArray) -> tuple[dict[str, Array], Target]:
        prior_key, data_key = jax.random.split(key)
        keys = dict(zip(observed, jax.random.split(data_key, len(observed)), strict=True))

        def draw(site: dict[str, Any]) -> None:
            site["value"] = like_data(site).sample(keys[site["name"]])

        simulated = with_observed(on_all_rows(model), draw)
        sites = handlers.trace(handlers.seed(simulated, prior_key)).get_trace(*args, **kwargs)
        values = {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}
        data = {name: values.pop(name) for name in observed}
        for name in factors:  # a factor has no value
            values.pop(name)
        return values, from_numpyro(given, data, *args, **kwargs)

    return simulate


def simulate_around(
    posterior: Posterior,
    target_of: Callable[[PRNGKeyArray, dict[str, Array]], Target] | None = None,
) -> Simulate:
    r"""Draws parameters from a posterior, and simulates a second data set with each.

        θ ~ p(θ | y),   y' ~ p(y' | θ),   then θ ~ p(θ | y, y')

    So θ has a uniform rank among exact draws given both data sets. This checks fits where your data
    are, and not on average over the prior. If the posterior is wrong, ranks are not uniform either.

    **Arguments:**

    - `posterior`: given the observed data, such as `fit.posterior`.
    - `target_of`: a function from a key and the parameters by name, on the model's scale, to the
        target of the observed data and of data simulated from the parameters. Default: by the
        NumPyro model that was fitted. It must use its data only as observed values.

    ```python
    import numpyro, numpyro.distributions as dist

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    target = ksivi.from_numpyro(model, jnp.array([0.3, 1.2, 0.8]))
    family = ksivi.SemiImplicit.location_scale(target.dim)
    first = ksivi.Posterior.of(family, target)  # or fit.posterior
    simulate = ksivi.calibration.simulate_around(first)
    truth, both = simulate(jax.random.key(0))
    ```

    Reference: Säilynoja, Schmitt, Bürkner and Vehtari, Posterior SBC: simulation-based calibration
    checking conditional on data, 2025.
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(
            f"posterior must be a ksivi.Posterior, such as fit.posterior, got {describe(posterior)}"
        )
    both = _given_both(posterior) if target_of is None else target_of
    require_callable(both, "target_of")

    def simulate(key: PRNGKeyArray) -> tuple[dict[str, Array], Target]:
        draw_key, data_key = jax.random.split(key)
        truth = {name: values[0] for name, values in posterior.draws(draw_key, 1).items()}
        with attributing_errors_to("target_of"):
            return truth, both(data_key, truth)

    return simulate


def _given_both(posterior: Posterior) -> Callable[[PRNGKeyArray, dict[str, Array]], Target]:
    """The target of the observed data and a second data set from the same model."""
    if posterior.target is None or posterior.target.model is None:
        raise ValueError(
            "posterior must come from a fit of a NumPyro model, or target_of must be given; a "
            "loaded posterior has no model"
        )
    target, model = posterior.target, posterior.target.model
    point = jnp.zeros(target.dim)
    jax.eval_shape(given_both(target, model.observed()).log_density, point)  # refuses early

    def target_of(key: PRNGKeyArray, truth: dict[str, Array]) -> Target:
        data = model.predictive(key, {name: value[None] for name, value in truth.items()})
        return given_both(target, {name: values[0] for name, values in data.items()})

    return target_of
