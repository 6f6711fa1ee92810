"""What every method returns: a `Fit` with its posterior, status, diagnostics and cost.

`Fit`, `Posterior`, `Status`, `Cost`, `Record`, `load` and `read_record` are public as `ksivi.Fit`
and so on.
"""

from .._core import archive as archive
from ._arviz import named_columns as named_columns
from ._arviz import require_finite as require_finite
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
from ._fit import Cost as Cost
from ._fit import Fit as Fit
from ._fit import gathered as gathered
from ._fit import raise_if_diverged as raise_if_diverged
from ._json import rows_of as rows_of
from ._npz import write_npz as write_npz
from ._posterior import Posterior as Posterior
from ._posterior import load as load
from ._record import Record as Record
from ._record import read_record as read_record
from ._status import Status as Status

__all__ = [
    "ChainDiagnostics",
    "Diagnostics",
    "FitDiagnostics",
    "NotFinite",
    "ParticleDiagnostics",
    "SampleDifference",
    "TrainDiagnostics",
]
