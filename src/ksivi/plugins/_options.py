"""What the plug-ins share: a run of `ksivi.fit` with the user's options."""

import inspect
import warnings
from typing import Any

from jaxtyping import PRNGKeyArray

from ..results import Fit
from ..targets import Target


def require_options(options: dict[str, Any]) -> None:
    """Raises `ValueError` for an option that `ksivi.fit` does not have."""
    from ..auto import fit

    known = [name for name in inspect.signature(fit).parameters if name not in ("key", "target")]
    for name in options:
        if name not in known:
            raise ValueError(f"{name} must be an option of ksivi.fit, which has {', '.join(known)}")


def fit_with(
    key: PRNGKeyArray, target: Target, options: dict[str, Any], kept_as: str, stacklevel: int
) -> Fit:
    """`ksivi.fit`, with a warning if the draws that it gives are not trusted: see `warn_of`."""
    from ..auto import fit

    found = fit(key, target, **options)
    warn_of(given(found), kept_as, stacklevel + 1)
    return found


def warn_of(of: Any, kept_as: str, stacklevel: int) -> None:
    """Warns if draws are not trusted.

    **Arguments:**

    - `of`: a fit or corrected draws.
    - `kept_as`: where the user finds the fit, such as `approx.ksivi`.
    - `stacklevel`: how many calls above the caller the warning belongs, as for `warnings.warn`.
    """
    if not of.trusted:
        text = (
            f"ksivi does not trust these draws. {of.status}. print({kept_as}.explain()) says what "
            "to do"
        )
        warnings.warn(text, UserWarning, stacklevel=stacklevel + 1)


def given(fit: Fit) -> Any:
    """What has the draws, `posterior`, and the verdict on them, `trusted` and `status`.

    These are the corrected draws if there are some, and otherwise the fit.
    """
    return fit if fit.refined is None else fit.refined
