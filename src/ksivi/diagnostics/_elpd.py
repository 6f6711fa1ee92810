"""elpd of compared models, by leave-one-out cross-validation."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..results import Fit, leave_one_out
from ._model_comparison import ComparedModel

_FIRST = 50
"""Observations that tell the data of two sites apart."""


class _Loo(NamedTuple):
    """elpd of each observation, how many estimates are unreliable, and what has the draws."""

    elpd: Float[np.ndarray, " m"]
    num_bad: int
    used: Any


def with_elpds(
    key: PRNGKeyArray, models: list[ComparedModel], fits: Sequence[Fit], num_draws: int
) -> list[ComparedModel]:
    """Adds elpd, and differences to the largest one."""
    found = [_loo(key, fit, num_draws) for fit in fits]
    known = [one.elpd for one in found if one is not None]
    if not known:
        return models
    best = max(known, key=np.sum)
    return [
        model if loo is None else _with_elpd(model, loo, best, loo.used is not fit)
        for model, loo, fit in zip(models, found, fits, strict=True)
    ]


def _loo(key: PRNGKeyArray, fit: Fit, num_draws: int) -> _Loo | None:
    """None if the target has no pointwise log likelihood."""
    target = fit.posterior.target
    if target is None or target.model is None or not target.model.observed():
        return None
    used = _used(fit)
    posterior = used.posterior
    stored = getattr(posterior.family, "points", None)  # no draw counts twice
    num_draws = num_draws if stored is None else min(num_draws, len(stored))
    by_site = target.model.log_likelihood(posterior.draws(key, num_draws))
    observed = target.model.observed()
    # Sites have the order of their data, whatever the models call them.
    names = sorted(by_site, key=lambda name: tuple(np.ravel(observed[name])[:_FIRST].tolist()))
    parts = [np.asarray(by_site[name], np.float64).reshape(num_draws, -1) for name in names]
    share = posterior.effective_size(num_draws) / num_draws
    reff = 1.0 if math.isnan(share) else share
    elpd, khat, limit = leave_one_out(np.concatenate(parts, axis=1), reff)
    return _Loo(elpd, int(np.sum(khat > limit)), used)


def _used(fit: Fit) -> Any:
    """What has the draws of elpd: corrected draws, unless they alone failed the checks."""
    refined = fit.refined
    return fit if refined is None or (fit.trusted and not refined.trusted) else refined


def _with_elpd(
    model: ComparedModel, loo: _Loo, best: Float[np.ndarray, " m"], is_corrected: bool
) -> ComparedModel:
    total = float(loo.elpd.sum() - best.sum())
    # A vector of observations can be one unit or several: then units have no partners.
    is_paired = loo.elpd.shape == best.shape
    return dataclasses.replace(
        model,
        elpd=float(loo.elpd.sum()),
        elpd_error=_error_of_sum(loo.elpd),
        elpd_difference=total,
        elpd_difference_error=_error_of_sum(loo.elpd - best) if is_paired else math.nan,
        num_bad_khat=loo.num_bad,
        elpd_trusted=bool(loo.used.trusted),
        elpd_status=str(loo.used.status) if is_corrected else "",
    )


def _error_of_sum(values: Float[np.ndarray, " m"]) -> float:
    return float(np.sqrt(len(values)) * values.std())
