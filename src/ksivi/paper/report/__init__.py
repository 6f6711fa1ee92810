"""The report of the paper's experiments, made from their records alone."""

from .summary import headline
from .write import write_report

__all__ = ["headline", "write_report"]
