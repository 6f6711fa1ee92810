"""How a run ended."""

import dataclasses
from typing import Literal

Kind = Literal["converged", "step limit", "diverged", "not trusted", "interrupted"]


@dataclasses.dataclass(frozen=True)
class Status:
    """How a run ended. `str` gives one sentence."""

    kind: Kind
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"
