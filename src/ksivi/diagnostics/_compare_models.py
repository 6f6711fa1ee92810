"""`compare_models`: models of the same data, by their evidence and by cross-validation."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._core.checks import as_count, as_flag, as_single_key, describe
from ..results import Fit, FitDiagnostics
from ._elpd import with_elpds
from ._importance import WIDENING, importance
from ._model_comparison import ComparedModel, ModelComparison
from ._pareto import khat_threshold, pareto_khat

_LEVEL = 1.959964
"""Half of a 95% interval, in standard errors."""


def compare_models(
    key: PRNGKeyArray, fits: dict[str, Fit], *, loo: bool = True, num_draws: int = 4_000
) -> ModelComparison:
    r"""Compares models of the same data, by their evidence and by leave-one-out cross-validation.

        p(data | model) = ∫ p(data | x) p(x) dx,   p(model | data) ∝ p(data | model)

    The evidence says how well a model with its prior predicts all data together; elpd says how well
    a fitted model predicts one further observation. Evidences can be compared only if prior and
    likelihood of every model are normalised. Models of NumPyro and PyMC are, unless they have
    improper priors, factors or potentials. A model with an improper prior has no evidence: it is
    listed without one, and there are no probabilities. A `Target` made from your own log density has
    an unknown constant, unless you wrote all of its constants.

    **Arguments:**

    - `fits`: what `ksivi.fit` or `ksivi.train` returned for each model, by name. Stored draws, such
        as chains, have no evidence. Fits of different observed data are refused, where they are
        known: in NumPyro and PyMC models, or by the number of rows of `Target.from_data`.
    - `loo`: whether to estimate elpd by PSIS-LOO, with ArviZ, for models of NumPyro and PyMC.
        Corrected draws in `fit.refined` are used where they exist, unless they failed the checks and
        the fit did not. A site with several observations counts as that many, and several sites
        count together.
    - `num_draws`: the number of draws for elpd.

    **Returns:** a `ModelComparison`, which prints as a table. Models with a doubt are marked, and the
    doubt says which of their numbers it is about.

    ```python
    import numpyro, numpyro.distributions as dist

    def model(y, scale):
        mean = numpyro.sample("mean", dist.Normal(0, scale))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    y = jnp.array([0.3, 1.2, 0.8])
    targets = {name: ksivi.from_numpyro(model, y, s) for name, s in {"a": 1.0, "b": 9.0}.items()}
    fits = {
        name: ksivi.fit(jax.random.key(0), target, progress=False)
        for name, target in targets.items()
    }
    print(ksivi.diagnostics.compare_models(jax.random.key(1), fits))
    ```

    Reference: Vehtari, Gelman and Gabry, Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC, 2017.
    """
    key, num_draws = as_single_key(key), as_count(num_draws, "num_draws", minimum=100)
    wants_loo = as_flag(loo, "loo")
    _require_fits(fits)
    _require_same_data(fits)
    evidence_key, draws_key = jax.random.split(key)
    found = [_with_evidence(evidence_key, name, fit) for name, fit in fits.items()]
    found = _with_probabilities(found)
    if wants_loo:
        found = with_elpds(draws_key, found, list(fits.values()), num_draws)
    return ModelComparison(tuple(sorted(found, key=_order)))


def _order(model: ComparedModel) -> tuple[float, ...]:
    """By evidence, then by elpd, the largest first and what is not known last."""
    values = (model.log_evidence, model.elpd)
    return tuple(math.inf if math.isnan(value) else -value for value in values)


def _require_fits(fits: dict[str, Fit]) -> None:
    is_dict = isinstance(fits, dict) and all(isinstance(name, str) for name in fits)
    if not is_dict or len(fits) < 2:
        raise ValueError(
            "fits must be a dict of at least two fits by the names of their models, such as "
            f"{{'linear': fit, 'quadratic': other}}, got {describe(fits)}"
        )
    for name, fit in fits.items():
        if not isinstance(fit, Fit):
            raise ValueError(f"fits[{name!r}] must be a ksivi.Fit, got {describe(fit)}")


def _require_same_data(fits: dict[str, Fit]) -> None:
    """Raises `ValueError` for different data, where they are known. Sites may have other names."""
    for (first, one), (second, other) in itertools.combinations(fits.items(), 2):
        data, others = _observed(one), _observed(other)
        if data is not None and others is not None and not _are_equal(data, others):
            raise ValueError(
                f"fits must be of the same data, but {first!r} and {second!r} have different "
                f"observed values, of the shapes {_shapes(data)} and {_shapes(others)}: fit both "
                "models to the same observations, in the same units"
            )
        counts = _num_rows(one), _num_rows(other)
        if None not in counts and counts[0] != counts[1]:
            raise ValueError(
                f"fits must be of the same data, but {first!r} has {counts[0]:,} rows and "
                f"{second!r} has {counts[1]:,}: fit both models to the same rows"
            )


def _observed(fit: Fit) -> list[np.ndarray] | None:
    target = fit.posterior.target
    if target is None or target.model is None:
        return None
    found = target.model.observed().values()
    # A likelihood that is a factor has no observed site.
    return [np.asarray(values, np.float64).ravel() for values in found] or None


def _num_rows(fit: Fit) -> int | None:
    target = fit.posterior.target
    return None if target is None or target.model is not None else target.density.num_rows


def _are_equal(data: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """Whether both have the same arrays, up to single precision and in any order."""
    left = list(others)
    for values in data:
        equal = [i for i, other in enumerate(left) if _agree(values, other)]
        if not equal:
            return False
        left.pop(equal[0])
    return not left


def _agree(one: np.ndarray, other: np.ndarray) -> bool:
    same_shape = one.shape == other.shape
    return same_shape and np.allclose(one, other, rtol=1e-5, atol=1e-30, equal_nan=True)


def _shapes(data: Sequence[np.ndarray]) -> str:
    return ", ".join(str(values.shape) for values in data) or "()"


def _with_evidence(key: PRNGKeyArray, name: str, fit: Fit) -> ComparedModel:
    """By the weights that `ksivi.fit` checked the draws with, or by new weights."""
    known, target = fit.diagnostics, fit.posterior.target
    improper = () if target is None or target.model is None else target.model.improper()
    named = ComparedModel(name, bool(fit.trusted), str(fit.status), improper=improper)
    if improper:
        return named
    if isinstance(known, FitDiagnostics) and math.isfinite(known.log_evidence):
        error = np.hypot(known.log_evidence_error, known.rows_error if known.num_rows else 0)
        khat, limit = known.wide_pareto_khat, known.pareto_khat_limit
        return _evident(named, known.log_evidence, error, khat, limit)
    if target is None or not target.has_log_density or not fit.posterior.family.has_density:
        return named
    weighed = importance(key, target, fit.posterior, widening=WIDENING)
    khat, limit = pareto_khat(weighed.log_weights), khat_threshold(len(weighed.log_weights))
    return _evident(named, weighed.log_evidence, weighed.log_evidence_error, khat, limit)


def _evident(
    named: ComparedModel, value: float, error: float, khat: float, limit: float
) -> ComparedModel:
    return dataclasses.replace(
        named,
        log_evidence=float(value),
        log_evidence_error=float(error),
        evidence_khat=float(khat),
        evidence_khat_limit=float(limit),
    )


def _with_probabilities(models: list[ComparedModel]) -> list[ComparedModel]:
    """Adds differences to the best evidence and probabilities, if every evidence is known."""
    values = np.array([one.log_evidence for one in models])
    errors = np.array([one.log_evidence_error for one in models])
    if not np.isfinite(values).any():
        return models
    best = int(np.nanargmax(values))
    found = []
    for i, one in enumerate(models):
        change = {"evidence_difference": float(values[i] - values[best])}
        change["evidence_difference_error"] = (
            0.0 if i == best else float(np.hypot(errors[i], errors[best]))
        )
        if np.isfinite(values + errors).all():
            middle, low, high = _probability(values, errors, i)
            change |= {
                "probability": middle,
                "probability_low": low,
                "probability_high": high,
            }
        found.append(dataclasses.replace(one, **change))  # type: ignore[arg-type]
    return found


def _probability(
    values: Float[np.ndarray, " m"], errors: Float[np.ndarray, " m"], i: int
) -> tuple[float, float, float]:
    """The probability of model i, and its interval: symmetric on the scale of the log odds.

    log odds = log Zᵢ − log Σⱼ Zⱼ over the others, whose error is that of each log Zⱼ times its share.
    """
    from scipy.special import expit, logsumexp  # SciPy takes longer to import than this library

    others, rest = np.delete(values, i), np.delete(errors, i)
    total = logsumexp(others)
    error = np.hypot(errors[i], np.linalg.norm(np.exp(others - total) * rest))
    log_odds = values[i] - total
    low, middle, high = expit(log_odds + _LEVEL * error * np.array([-1, 0, 1]))
    return float(middle), float(low), float(high)
