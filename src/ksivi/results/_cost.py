"""What a run cost."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a run cost: wall-clock seconds (with compilation), steps, and score evaluations."""

    seconds: float
    steps: int
    score_evals: int

    @classmethod
    def of_all(cls, costs: Sequence["Cost"], seconds: float) -> "Cost":
        """What several runs cost that took these seconds together."""
        return cls(seconds, sum(one.steps for one in costs), sum(one.score_evals for one in costs))
