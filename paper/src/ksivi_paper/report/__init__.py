"""The report of the paper's experiments, made from their records alone."""

from .methods import write_methods
from .summary import embed, headline
from .write import write_report

__all__ = ["embed", "headline", "write_methods", "write_report"]
