"""What the plug-ins share: options of `ksivi.fit`, and the warning about a fit that is not trusted."""

import inspect
import warnings
from typing import Any

from ..auto import fit as run_fit
from ..results import Fit

_OPTIONS = [name for name in inspect.signature(run_fit).parameters if name not in ("key", "target")]


def require_options(options: dict[str, Any]) -> None:
    """Raises `ValueError` for an option that `ksivi.fit` does not have."""
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(
                f"{name} must be an option of ksivi.fit, which has {', '.join(_OPTIONS)}"
            )


def warn_if_doubted(fit: Fit, stacklevel: int) -> None:
    """Warns if the fit is not trusted. The status says why."""
    if not fit.trusted:
        warnings.warn(
            f"ksivi does not trust these draws. {fit.status}", UserWarning, stacklevel + 1
        )
