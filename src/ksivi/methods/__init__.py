"""Methods that carry their own draws, and the loop that runs them."""

from .base import AbstractMethod, Records, Verdict, as_start, state_records
from .run import run

__all__ = ["AbstractMethod", "Records", "Verdict", "as_start", "run", "state_records"]
