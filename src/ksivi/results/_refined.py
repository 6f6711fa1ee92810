"""What a fit says of its corrected draws."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RefinedDraws:
    """Corrected draws in numbers. The draws themselves are in `fit.refined.posterior`.

    **Attributes:**

    - `by`: the method that corrected them.
    - `number`, `effective`: how many there are, and how many independent draws they are worth.
    - `num_transitions`: the transitions of each chain; 0 if there were no chains.
    - `trusted`, `verdict`: whether these draws passed the checks, and the status in words.
    - `refine`: the argument of `fit` that asked for them, `"hmc"` or `"importance"`. Empty in records
        of earlier versions.
    """

    by: str
    number: int
    effective: float
    num_transitions: int
    trusted: bool
    verdict: str
    refine: str = ""

    def __str__(self) -> str:
        ran = f" after {self.num_transitions:,} transitions" if self.num_transitions else ""
        size = f"{self.number:,} draws, {self.effective:,.0f} effective"
        return f"{size}, by {self.by}{ran}; {self.verdict}"
