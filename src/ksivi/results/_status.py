"""How a run ended."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from .._core.schema import conform
from ._codes import Doubt

Kind = Literal["converged", "step limit", "diverged", "not trusted", "interrupted"]


class StatusFacts(TypedDict):
    """A status in JSON. Records of earlier versions have no doubts."""

    kind: str
    reason: str
    doubts: NotRequired[tuple[Doubt, ...]]


@dataclasses.dataclass(frozen=True)
class Status:
    """How a run ended. `str` gives one sentence.

    **Attributes:**

    - `kind`: *converged, step limit, diverged, not trusted* or *interrupted*.
    - `reason`: why, in words.
    - `doubts`: each reason alone, with its code and the coordinates that it is about. Endings that a
        user can act on, such as `step-limit`, are among them.

    ```python
    fit.status.kind, fit.status.codes
    ```
    """

    kind: Kind
    reason: str
    doubts: tuple[Doubt, ...] = ()

    @classmethod
    def of_doubts(cls, kind: Kind, doubts: Sequence[Doubt]) -> "Status":
        """A status whose reason is the sentences of these doubts."""
        return cls(kind, "; ".join(map(str, doubts)), tuple(doubts))

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the doubts and of the ending, each once. The glossary explains them."""
        return tuple(dict.fromkeys(one.code for one in self.doubts))

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def status_to_json(status: Status) -> dict[str, Any]:
    """What `status_from_json` reads."""
    doubts = [
        {
            "code": one.code,
            "sentence": one.sentence,
            "coordinates": _listed(one.coordinates),
            "by_tail": list(one.by_tail),
        }
        for one in status.doubts
    ]
    return {"kind": status.kind, "reason": status.reason, "doubts": doubts}


def status_from_json(found: Any) -> Status:
    """The status in a record, also of an earlier version, which had no doubts."""
    facts = conform(found, StatusFacts, "status")
    return Status(facts["kind"], facts["reason"], facts.get("doubts", ()))


def _listed(coordinates: tuple[int, ...] | None) -> list[int] | None:
    return None if coordinates is None else list(coordinates)
