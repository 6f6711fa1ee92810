"""What every method returns: a `Fit` with its posterior, status, diagnostics and cost."""

from ._arviz import named_columns as named_columns
from ._posterior import Cost, Fit, Posterior, Status, gathered, load
from ._record import Record, read_record

__all__ = ["Cost", "Fit", "Posterior", "Record", "Status", "gathered", "load", "read_record"]
