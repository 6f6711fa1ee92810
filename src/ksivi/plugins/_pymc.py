"""`ksivi.fit` as a method of `pymc.fit`, and so of bambi."""

import functools
from typing import Any

import jax
import numpy as np

from .._core.checks import as_count, describe
from .._core.numerics import new_key
from ..results import Fit, Posterior
from ..targets import from_pymc, split
from ._options import fit_with, given, require_options

_WITHOUT_EFFECT = ("progressbar_theme", "backend", "include_transformed")
"""Options that `pymc.fit` gives to every method. The last two came with PyMC 6."""


def pymc(
    *, model: Any = None, random_seed: Any = None, draws: int = 2_000, **fit_options: Any
) -> Any:
    """A method for `pymc.fit`: `ksivi.fit` on the model of the context.

    `pymc.fit(method=ksivi.plugins.pymc())` returns an approximation, as it does for PyMC's own
    methods. Its `sample(draws)` makes new independent draws and returns what PyMC's approximations
    return, with deterministic variables, dimensions and coordinates. `sample(draws,
    log_likelihood=True)` adds the pointwise log likelihood, which `arviz.loo` needs. PyMC's other
    functions of an approximation, such as `sample_node`, use stored draws.

    The method and the approximation have `ksivi`, the `ksivi.Fit`; `trusted`; `hist`, the loss of a
    trained sampler, empty for answers that need no training; and `approx`. A fit that is not
    trusted warns with its status.

    With bambi: `model.fit(inference_method="vi", method=ksivi.plugins.pymc())`.

    **Arguments:**

    - `model`: the `pymc.Model`. Default: that of the `with` block, also if `pymc.fit` is given
        another: it does not tell its methods.
    - `random_seed`: a whole number, or a generator of NumPy. Default: another seed at each fit.
        `pymc.fit` does not pass its own `random_seed` to a method.
    - `draws`: the number of stored draws.
    - `fit_options`: the options of `ksivi.fit`, such as `budget_s`. With `refine="hmc"`, `sample`
        gives the corrected draws, of which there are about a thousand, and which depend on each
        other. `trusted`, the warning and the attributes of the data are then about these draws.

    `ksivi.fit` decides itself how many steps it takes. So `n`, `score` and `backend` of `pymc.fit`
    have no effect, and other options of PyMC's methods raise `ValueError`.

    ```{.python .no-run}
    with model:
        approx = pymc.fit(method=ksivi.plugins.pymc(random_seed=1))
    data = approx.sample(1_000)
    ```
    """
    try:
        import pymc as pm
    except ImportError as error:
        raise ImportError("ksivi.plugins.pymc needs PyMC: pip install 'ksivi[pymc]'") from error
    if model is not None and not isinstance(model, pm.Model):
        raise ValueError(f"model must be a pymc.Model, got {describe(model)}")
    draws = as_count(draws, "draws")
    require_options(fit_options)
    return _method_class()(model, _generator(random_seed), draws, fit_options)


def _generator(random_seed: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_seed)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "random_seed must be None, a whole number of at least 0, or a generator of NumPy, got "
            f"{describe(random_seed)}"
        ) from error


# PyMC is optional. So the classes that derive from its own are made when they are first needed.


@functools.cache
def _approximation_class() -> Any:
    import pymc as pm
    from pymc.variational import Empirical

    class KSIVIApproximation(Empirical):
        """Draws of a `ksivi.Fit`: new ones for `sample`, stored ones for PyMC's graphs."""

        def __init__(self, fit: Fit, model: Any, rng: np.random.Generator, draws: int):
            super().__init__(size=draws, jitter=0, model=model)
            self.ksivi, self.trusted, self.hist = fit, given(fit).trusted, fit.history["loss"]
            self._rng = rng
            stored = self.histogram.get_value()
            for name, values in self.sample_dict_fn(draws).items():
                _, columns, _, _ = self.ordering[name]
                stored[:, columns] = values.reshape(draws, -1)
            self.histogram.set_value(stored)

        def __repr__(self) -> str:
            name = f"model {self.model.name!r}, " if self.model.name else ""
            verdict = "trusted" if self.trusted else "not trusted"
            return f"KSIVIApproximation({name}{self.ddim:,} values, {verdict})"

        __str__ = __repr__

        @property
        def approx(self) -> Any:
            """This approximation, under the name that it has in PyMC's methods."""
            return self

        def sample_dict_fn(self, draws: int = 100, *, random_seed: Any = None) -> dict[str, Any]:
            """Draws on the unconstrained scale, by PyMC's names of the values."""
            rng = self._rng if random_seed is None else np.random.default_rng(random_seed)
            return _by_value_name(given(self.ksivi).posterior, self.model, new_key(rng), draws)

        def sample(self, draws: int = 500, *, log_likelihood: bool = False, **kwargs: Any) -> Any:
            """As PyMC's, with the pointwise log likelihood if it is wanted."""
            is_data = kwargs.get("return_inferencedata", True)
            if log_likelihood and not is_data:
                raise ValueError(
                    "log_likelihood must be False with return_inferencedata=False: a trace of PyMC "
                    "has no place for it, so leave return_inferencedata out"
                )
            found = super().sample(draws, **kwargs)
            if is_data:
                found.posterior.attrs.update(given(self.ksivi).posterior.attributes_of(draws))
                if log_likelihood:
                    pm.compute_log_likelihood(found, model=self.model, progressbar=False)
            return found

    return KSIVIApproximation


@functools.cache
def _method_class() -> Any:
    from pymc.variational import Inference

    class KSIVIMethod(Inference):
        """What `ksivi.plugins.pymc` gives to `pymc.fit`."""

        approx, ksivi, trusted = None, None, None

        def __init__(self, model: Any, rng: np.random.Generator, draws: int, options: dict):
            self.hist, self.state = np.zeros(0), None
            self._model, self._rng, self._draws, self._options = model, rng, draws, options

        def fit(self, n=10_000, score=None, callbacks=None, progressbar=True, **kwargs):
            """Fits the model. `n` and `score` have no effect."""
            _require_no_options({"callbacks": callbacks} | kwargs)
            model = _model_of(self._model)
            options = ({} if progressbar else {"progress": False}) | self._options
            key, target = new_key(self._rng), from_pymc(model)
            found = fit_with(key, target, options, kept_as="approx.ksivi", stacklevel=3)
            self.approx = _approximation_class()(found, model, self._rng, self._draws)
            self.ksivi, self.trusted, self.hist = found, self.approx.trusted, self.approx.hist
            return self.approx

        def refine(self, *args: Any, **kwargs: Any) -> None:
            """PyMC takes more steps here; `ksivi.fit` ends when it is done."""
            raise NotImplementedError(
                "ksivi.fit takes as many steps as it needs; to improve the draws, call pymc.fit "
                'again with method=ksivi.plugins.pymc(refine="hmc")'
            )

    return KSIVIMethod


def _by_value_name(
    posterior: Posterior, model: Any, key: jax.Array, draws: int
) -> dict[str, np.ndarray]:
    """Unconstrained draws, in the order of the model's variables: PyMC passes them by position."""
    names, shapes = zip(*posterior.layout, strict=True)
    found = dict(zip(names, split(posterior.sample(key, draws), shapes), strict=True))
    return {
        model.rvs_to_values[one].name: np.asarray(found[one.name], np.float64)
        for one in model.free_RVs
    }


def _model_of(model: Any) -> Any:
    import pymc as pm

    try:
        return pm.modelcontext(model)
    except TypeError as error:
        raise ValueError(
            "model must be a pymc.Model, got None outside of a model's context: call pymc.fit inside "
            "of `with model:`, or give the model to ksivi.plugins.pymc(model=model)"
        ) from error


def _require_no_options(options: dict[str, Any]) -> None:
    """Raises `ValueError` for an option that PyMC's own methods have and `ksivi.fit` has not."""
    for name, value in options.items():
        if value is not None and name not in _WITHOUT_EFFECT:
            raise ValueError(
                f"{name} must not be given: it is for PyMC's own methods; give options of ksivi.fit "
                f"to ksivi.plugins.pymc(...), got {describe(value)}"
            )
