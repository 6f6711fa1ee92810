"""What every diagnostic of a sampler asks of its arguments."""

from typing import Any

from .._core.checks import describe
from ..results import Posterior
from ..targets import Target, require_all_rows


def require_fit(target: Any, posterior: Any, name: str) -> None:
    """Refuses (`ValueError`), on behalf of the function named, all but a target and a posterior that fit together."""
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {describe(target)}")
    if not isinstance(posterior, Posterior):
        raise ValueError(f"posterior must be a ksivi.Posterior, got {describe(posterior)}")
    require_all_rows(target, name)
    if target.dim != posterior.dim:
        raise ValueError(f"posterior must have the target's dim {target.dim}, got dim {posterior.dim}")
