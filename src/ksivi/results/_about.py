"""What is known about a run besides its draws, as attributes of ArviZ data."""

from collections.abc import Mapping

import jax

from .._core.version import __version__
from ._diagnostics import Diagnostics
from ._status import Status

Attributes = dict[str, str | int | float]
"""Text and numbers: netCDF, in which ArviZ stores data, has no other attributes."""

_METHODS = {"fit": "ksivi.fit", "train": "ksivi.train", "particles": "ksivi.run"}
_METHODS["chains"] = "ksivi.run"
_NUMBERS = (
    *("log_evidence", "log_evidence_error", "effective_sample_size"),
    *("num_rows", "num_all_rows", "rows_error"),  # of fits that used some rows
)


@jax.tree_util.register_pytree_node_class
class About:
    """Attributes of a run that its posterior carries.

    A compiled program is used for posteriors of many runs, so it must know the attributes of none:
    a posterior that goes through `jax.jit` or `jax.tree.map` comes out without them.
    """

    def __init__(self, attributes: Mapping[str, str | int | float]):
        self.attributes: Attributes = dict(attributes)

    def tree_flatten(self) -> tuple[tuple[()], None]:
        return (), None

    @classmethod
    def tree_unflatten(cls, _: None, __: tuple[()]) -> "About":
        return cls({})

    def __repr__(self) -> str:
        return f"About({self.attributes!r})"


def library_attributes() -> Attributes:
    """The attributes that every group of ArviZ data has."""
    return {"inference_library": "ksivi", "inference_library_version": __version__}


def about_run(
    status: Status, trusted: bool, diagnostics: Diagnostics, **more: str | float | None
) -> About:
    """The method, the answer, the status and the numbers of a run. What is unknown is left out."""
    # A fit of a user's own need not have diagnostics of ours.
    method = _METHODS.get(getattr(diagnostics, "kind", ""))
    given = {name: getattr(diagnostics, name, None) for name in ("answer", *_NUMBERS)}
    found = {"method": method} | given | more
    known = {name: value for name, value in found.items() if _is_known(value)}
    verdict = {"status": str(status), "trusted": int(trusted)}  # netCDF has no booleans
    return About(known | verdict)


def _is_known(value: str | float | None) -> bool:
    """Whether a value is there: no count of 0 (all rows, no steps), no empty text and no NaN."""
    return value == value and (bool(value) or isinstance(value, float))
