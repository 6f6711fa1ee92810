"""Diagnostics in records of version 0.1.0, which held display strings instead of numbers."""

import re
from typing import Any

from .._core.schema import conform
from ._diagnostics import (
    ChainDiagnostics,
    Diagnostics,
    Discrepancy,
    FitDiagnostics,
    NotFinite,
    SampleDifference,
    TrainDiagnostics,
)
from ._json import diagnostics_to_json

_NUMBER = r"(-?(?:[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan))"
_DIFFERENCE = "means # (#) sd, log widths # (#), tails #% and #%"
_CHAINS = {
    "R-hat": "r_hat",
    "effective sample size": "effective_sample_size",
    "divergences": "divergences",
    "acceptance": "acceptance",
}
_NOT_FINITE = re.compile(
    r"the (?P<quantity>log density|score|gradient)(?: in (?P<where>.*?))?"
    r"(?: at (?P<share>[\d.]+)% of the draws)?, at step (?P<step>[\d,]+)"
)


def upgraded(found: Any) -> dict[str, Any]:
    """The same diagnostics as this version writes them. Unknown words are kept as they are."""
    found = conform(found, dict[str, Any], "diagnostics")
    try:
        return diagnostics_to_json(_parsed(found))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return {**found, "kind": "0.1.0"}


def _parsed(found: dict[str, Any]) -> Diagnostics:
    if "ELBO" in found:
        return _fit(found)
    if "stein ratio" in found:
        ratio, words = found["stein ratio"], found.get("not finite")
        seen = None if words is None else _not_finite(words)
        return TrainDiagnostics(_float(ratio), int(found.get("skipped steps", 0)), seen)
    if not found:
        return FitDiagnostics()
    return ChainDiagnostics(**{_CHAINS[name]: value for name, value in found.items()})


def _fit(found: dict[str, Any]) -> FitDiagnostics:
    khat, num_mixing, limit, num_weights = _read(
        "#, K = #, at most # for # draws", found["Pareto k-hat"]
    )
    wide = "; k-hat # with the mixing # times as wide"
    *weights, wide_khat, widening = _read(_DIFFERENCE + wide, found["weights move"])
    *hmc, memory = _read(_DIFFERENCE + "; memory #", found["HMC moves"])
    elbo, elbo_error = _read("# ± #", found["ELBO"])
    log_evidence, log_evidence_error = _read("# ± #", found["log evidence"])
    runs = [one for one in found["runs differ"].split("; ") if one != "no other run came near"]
    return FitDiagnostics(
        elbo=elbo,
        elbo_error=elbo_error,
        log_evidence=log_evidence,
        log_evidence_error=log_evidence_error,
        pareto_khat=khat,
        pareto_khat_limit=limit,
        wide_pareto_khat=wide_khat,
        effective_share=_read("# of the weights", found["effective share"])[0],
        weights_difference=_difference(weights),
        hmc_difference=_difference(hmc),
        hmc_memory=memory,
        run_differences=tuple(_difference(_read(_DIFFERENCE, one)) for one in runs),
        ksd=_discrepancy(found["KSD²"]),
        num_weights=int(num_weights),
        num_mixing=int(num_mixing),
        widening=widening,
    )


def _difference(numbers: list[float]) -> SampleDifference:
    shift, largest_shift, width, largest_width, lower, upper = numbers
    return SampleDifference(shift, largest_shift, width, largest_width, lower / 100, upper / 100)


def _discrepancy(words: str) -> Discrepancy:
    numbers, kernel = words.removesuffix(" kernel").rsplit(", ", 1)
    ksd2, low, high, p_value = _read("# (# to #), p = #", numbers)
    return Discrepancy(ksd2, low, high, p_value, kernel)


def _not_finite(words: str) -> NotFinite:
    """The coordinates are the first eight: the words held no more."""
    found = _NOT_FINITE.fullmatch(words)
    if found is None:
        raise ValueError(f"cannot read {words!r}")
    where = [one for one in (found["where"] or "").split(", ") if one not in ("", "…")]
    coordinates = tuple(int(one) if one.isdecimal() else one for one in where)
    share = float("nan") if found["share"] is None else float(found["share"]) / 100
    return NotFinite(int(found["step"].replace(",", "")), found["quantity"], coordinates, share)


def _read(template: str, words: str) -> list[float]:
    """The numbers that stand in the words where the template has a #."""
    found = re.fullmatch(re.escape(template).replace(r"\#", _NUMBER), words)
    if found is None:
        raise ValueError(f"cannot read {words!r}")
    return [float(one.replace(",", "")) for one in found.groups()]


def _float(value: float | None) -> float:
    return float("nan") if value is None else float(value)
