"""What a record must hold, checked when it is read: the facts in `fit.json`, and the history."""

from typing import Any, TypedDict

import numpy as np

from .._core.schema import conform
from ._cost import Cost
from ._diagnostics import FitDiagnostics
from ._json import diagnostics_from_json
from ._posterior import Posterior
from ._status import StatusFacts
from ._verdicts import numbers_of

_CURVES = ("loss", "bound", "stein_ratio")


class _Facts(TypedDict):
    """There may be more: what the caller of `Record.of` knows about the run."""

    status: StatusFacts
    trusted: bool
    diagnostics: dict[str, Any]
    cost: Cost
    parameters: dict[str, list[int]]
    device: str
    versions: dict[str, str]


def require_facts(facts: dict[str, Any], posterior: Posterior) -> None:
    """Raises `ValueError` with the first fact that is missing or has another type."""
    found = conform(facts, _Facts, "the record")
    stated = [(name, tuple(shape)) for name, shape in found["parameters"].items()]
    if stated != list(posterior.layout):
        raise ValueError(
            f"the record has parameters {stated}, but its posterior has {posterior.layout}"
        )
    diagnostics = diagnostics_from_json(found["diagnostics"])
    if isinstance(diagnostics, FitDiagnostics) and diagnostics.parameters is not None:
        diagnostics.parameters.require_names(numbers_of(posterior).names)


def require_history(history: dict[str, np.ndarray]) -> None:
    """Raises `ValueError` unless the history has curves over its steps."""
    steps = history.get("step")
    if steps is None or steps.ndim != 1 or steps.dtype.kind not in "iuf":
        raise ValueError("the history must have numbers of steps")
    for name in _CURVES:
        values = history.get(name, steps)
        if values.shape != steps.shape or values.dtype.kind not in "biuf":
            raise ValueError(
                f"the history must have one {name} per step, got {values.dtype} of shape "
                f"{values.shape} for {len(steps)} steps"
            )
