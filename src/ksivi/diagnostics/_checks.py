"""Checks of the arguments that all diagnostics of a sampler share."""

from typing import Any

from .._core.checks import describe
from ..results import Posterior
from ..targets import Target, require_all_rows


def require_fit(target: Any, posterior: Any, name: str) -> None:
    """Raises a `ValueError` unless target and posterior fit together."""
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {describe(target)}")
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a ksivi.Posterior, got {describe(posterior)}")
    require_all_rows(target, name)
    if target.dim != posterior.dim:
        raise ValueError(
            f"posterior must have the target's dim {target.dim}, got dim {posterior.dim}"
        )
