"""What every method returns: a `Fit` with its posterior, status, diagnostics and cost."""

from .._core import archive as archive
from ._arviz import named_columns as named_columns
from ._diagnostics import (
    ChainDiagnostics,
    Diagnostics,
    FitDiagnostics,
    NotFinite,
    ParticleDiagnostics,
    SampleDifference,
    TrainDiagnostics,
)
from ._diagnostics import Discrepancy as Discrepancy
from ._fit import Cost, Fit, Status
from ._fit import gathered as gathered
from ._json import rows_of as rows_of
from ._posterior import Posterior, load
from ._record import Record, read_record

__all__ = [
    "ChainDiagnostics",
    "Cost",
    "Diagnostics",
    "Fit",
    "FitDiagnostics",
    "NotFinite",
    "ParticleDiagnostics",
    "Posterior",
    "Record",
    "SampleDifference",
    "Status",
    "TrainDiagnostics",
    "load",
    "read_record",
]
