"""Methods that carry their own draws, and the loop that runs them."""

from .base import AbstractMethod, Records, Verdict, as_start, equal_but, require_values, state_records
from .run import run

__all__ = [
    "AbstractMethod",
    "Records",
    "Verdict",
    "as_start",
    "equal_but",
    "require_values",
    "run",
    "state_records",
]
