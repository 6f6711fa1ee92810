"""The paper's experiments as values, their runner, their records, and the report made from them."""

from .experiments import EXPERIMENTS, PRESETS
from .records import Folder
from .report import embed, headline, write_report
from .runner import Outcome, run

__all__ = ["EXPERIMENTS", "PRESETS", "Folder", "Outcome", "embed", "headline", "run", "write_report"]
