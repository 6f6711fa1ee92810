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
_NUMBERS = ("log_evidence", "log_evidence_error")


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


def about_run(status: Status, trusted: bool, diagnostics: Diagnostics) -> About:
    """The method, the answer, the status and the evidence of a run. What is unknown is left out."""
    # A fit of a user's own need not have diagnostics of ours.
    method = _METHODS.get(getattr(diagnostics, "kind", ""))
    answer = getattr(diagnostics, "answer", None)
    found: Attributes = {
        **({"method": method} if method else {}),
        **({"answer": answer} if answer else {}),
        "status": str(status),
        "trusted": int(trusted),  # netCDF has no booleans
    }
    numbers = {name: getattr(diagnostics, name, None) for name in _NUMBERS}
    known = {name: x for name, x in numbers.items() if x is not None and x == x}  # not NaN
    return About(found | known)
