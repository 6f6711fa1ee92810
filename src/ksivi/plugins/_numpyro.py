"""A `ksivi.Fit` as an automatic guide of NumPyro."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_single_key, describe, require_callable
from ..results import Fit, Posterior
from ..targets import Affine, from_numpyro, split
from ._options import fit_with, require_options, warn_of

_KEPT_AS = "guide.ksivi_fit"
_NUM_MIXING = 1_000
_NUM_QUANTILE_DRAWS = 16_384
"""Draws for the quantiles: the error of a median is 1% of a standard deviation."""


def numpyro_guide(
    model: Callable, fit: Fit | None = None, *, prefix: str = "auto", **fit_options: Any
) -> Any:
    """An `AutoContinuous` guide of NumPyro, whose parameters are those of a `ksivi.Fit`.

    `guide.fit(key, *args, **kwargs)` runs `ksivi.fit` on the model with these arguments and returns
    the parameters, a dict of arrays. Then use the guide as any other of NumPyro:
    `Predictive(model, guide=guide, params=params, num_samples=1_000)`,
    `guide.sample_posterior(key, params, sample_shape=(1_000,))`, `guide.median(params)` and
    `guide.quantiles(params, [0.05, 0.95])`. Medians and quantiles are of each unconstrained
    coordinate, as with NumPyro's guides, from 16,384 draws of a fixed key.

    `guide.ksivi_fit` is the `ksivi.Fit`. A fit that is not trusted warns with its status. The guide
    is not made for more training by `SVI`: `ksivi.fit` does all of it.

    **Arguments:**

    - `model`: a NumPyro model.
    - `fit`: a fit to this model, from `ksivi.fit` and `ksivi.from_numpyro`. The guide then has its
        parameters already, in `guide.params`.
    - `prefix`: the beginning of the names of the parameters.
    - `fit_options`: the options of `ksivi.fit`, such as `budget_s`.

    ```python
    import numpyro, numpyro.distributions as dist

    def model(y=None):
        mean = numpyro.sample("mean", dist.Normal(0, 10))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    guide = ksivi.plugins.numpyro_guide(model)
    params = guide.fit(jax.random.key(0), jnp.array([1.0, 2.0, 4.0]))
    predictive = numpyro.infer.Predictive(model, guide=guide, params=params, num_samples=100)
    y = predictive(jax.random.key(1))["y"]
    ```
    """
    try:
        import numpyro  # noqa: F401
    except ImportError as error:
        raise ImportError("numpyro_guide needs NumPyro: pip install 'ksivi[numpyro]'") from error
    require_callable(model, "model")
    if fit_options.get("refine") is not None:
        raise ValueError(
            "refine must be None for a guide, which needs a density: corrected draws have none. "
            "Use ksivi.fit with ksivi.from_numpyro for these"
        )
    if not isinstance(prefix, str):
        raise ValueError(f"prefix must be text, got {describe(prefix)}")
    require_options(fit_options)
    guide = _guide_class()(model, prefix, fit_options)
    if fit is not None:
        guide.use(fit)
        warn_of(fit, _KEPT_AS, stacklevel=2)
    return guide


def _arguments_of(fit: Any) -> tuple[tuple, dict[str, Any]]:
    """The arguments of the model. Raises `ValueError` unless it is a fit to a NumPyro model."""
    target = fit.posterior.target if isinstance(fit, Fit) else None
    model: Any = None if target is None else target.model
    if model is None or not hasattr(model, "kwargs"):
        raise ValueError(
            "fit must be a ksivi.Fit of a target made with ksivi.from_numpyro, got "
            f"{describe(fit) if not isinstance(fit, Fit) else 'a fit of another target'}"
        )
    return model.args, model.kwargs


@functools.cache
def _guide_class() -> Any:
    """The class that NumPyro accepts. It is made when NumPyro is first needed."""
    import numpyro
    from numpyro import handlers
    from numpyro.infer.autoguide import AutoContinuous
    from numpyro.infer.initialization import init_to_value

    class KSIVIGuide(AutoContinuous):
        """A guide with the parameters of a `ksivi.Fit`."""

        ksivi_fit: Fit | None = None
        params: dict[str, Array]

        def __init__(self, model: Callable, prefix: str, options: dict[str, Any]):
            super().__init__(model, prefix=prefix)
            self._options, self.params = options, {}

        def fit(self, key: PRNGKeyArray, *args: Any, **kwargs: Any) -> dict[str, Array]:
            """Runs `ksivi.fit` and returns the parameters of the guide."""
            key = as_single_key(key)
            target = from_numpyro(self.model, *args, **kwargs)
            return self.use(fit_with(key, target, self._options, _KEPT_AS, stacklevel=2))

        def use(self, fit: Fit) -> dict[str, Array]:
            """Takes the parameters of this fit."""
            arguments, posterior = _arguments_of(fit), fit.posterior.alone()
            self.ksivi_fit, self.prototype_trace = fit, None
            sampler = posterior.family, posterior.coordinates
            arrays, self._rest = eqx.partition(sampler, eqx.is_array)
            leaves, self._structure = jax.tree_util.tree_flatten_with_path(arrays)
            self.params = {f"{self.prefix}_{_name(path)}": leaf for path, leaf in leaves}
            start = jax.tree.map(lambda x: x[0], posterior.draws(jax.random.key(0), 1))
            self.init_loc_fn = init_to_value(values=start)
            with handlers.seed(rng_seed=0):
                self._setup_prototype(*arguments[0], **arguments[1])
            self._order = _order(posterior, self._init_locs)
            return self.params

        def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Array]:
            self._require_fit()
            return super().__call__(*args, **kwargs)

        def _get_posterior(self) -> Any:
            self._require_fit()
            leaves = [numpyro.param(name, value) for name, value in self.params.items()]
            arrays = jax.tree.unflatten(self._structure, leaves)
            family, coordinates = eqx.combine(arrays, self._rest)
            return _distribution(family, coordinates, self._order)

        def median(self, params: dict[str, Array]) -> dict[str, Array]:
            return jax.tree.map(lambda x: x[0], self.quantiles(params, [0.5]))

        def quantiles(self, params: dict[str, Array], quantiles: Any) -> dict[str, Array]:
            posterior = handlers.substitute(self._get_posterior, params)()
            x = posterior.sample(jax.random.key(0), (_NUM_QUANTILE_DRAWS,))
            return self._unpack_and_constrain(
                jnp.quantile(x, jnp.asarray(quantiles), axis=0), params
            )

        def _require_fit(self) -> None:
            if self.ksivi_fit is None:
                raise ValueError(
                    "guide must be fitted first: call guide.fit(key, *args), with the arguments of "
                    "the model"
                )

    return KSIVIGuide


def _name(path: tuple) -> str:
    """The name of an array of the sampler, such as `family.means`."""
    part, *inside = path
    kind = ("family", "coordinates")[part.idx]
    return f"{kind}.{jax.tree_util.keystr(tuple(inside), simple=True, separator='.')}"


def _order(posterior: Posterior, locs: dict[str, Array]) -> np.ndarray:
    """Where each coordinate of NumPyro's vector is in a draw of the posterior."""
    names, shapes = zip(*posterior.layout, strict=True)
    places = split(jnp.arange(posterior.dim), shapes)
    if sorted(names) != sorted(locs):
        raise ValueError(
            f"fit must be of this model, whose parameters are {sorted(locs)}, got a fit with "
            f"{sorted(names)}"
        )
    found = {name: np.ravel(place) for name, place in zip(names, places, strict=True)}
    return np.concatenate([found[name] for name in locs])


def _distribution(family: Any, coordinates: Affine | None, order: np.ndarray) -> Any:
    """The sampler as a distribution of NumPyro, over its vector of unconstrained values."""
    from numpyro.distributions import Distribution, constraints

    class KSIVIPosterior(Distribution):
        support = constraints.real_vector

        def __init__(self):
            super().__init__(event_shape=(family.dim,), validate_args=False)

        def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
            count = int(np.prod(sample_shape, dtype=int))
            u = family.sample(key, max(count, 1))[:count]
            x = u if coordinates is None else jax.vmap(coordinates)(u)
            return x[:, order].reshape(*sample_shape, family.dim)

        def log_prob(self, value: Float[Array, "... d"]) -> Float[Array, "..."]:
            """Exact for Gaussians and their mixtures; otherwise an estimate, which is too low."""
            x = value[..., np.argsort(order)].reshape(-1, family.dim)
            u = x if coordinates is None else jax.vmap(coordinates.inverse)(x)
            log_q = family.log_prob(jax.random.key(0), u, _NUM_MIXING)
            log_q = log_q if coordinates is None else log_q - coordinates.log_det()
            return log_q.reshape(value.shape[:-1])

    return KSIVIPosterior()
