"""The experiments of the KSIVI paper: cells, the runner, records, and the report."""

from .experiments import EXPERIMENTS, PRESETS
from .methods import ALL_EXPERIMENTS
from .records import Folder
from .report import embed, headline, write_methods, write_report
from .runner import CellOutcome, run_cells

__all__ = [
    "ALL_EXPERIMENTS",
    "EXPERIMENTS",
    "PRESETS",
    "CellOutcome",
    "Folder",
    "embed",
    "headline",
    "run_cells",
    "write_methods",
    "write_report",
]
