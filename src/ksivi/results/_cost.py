"""What a run cost."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a run cost: wall-clock seconds (with compilation), steps, and score evaluations."""

    seconds: float
    steps: int
    score_evals: int
