"""What every method returns: a `Fit` with its posterior, status, diagnostics and cost.

`Fit`, `Posterior`, `Status`, `Cost`, `Record`, `load` and `read_record` are public as `ksivi.Fit`
and so on.
"""

from .._core import archive as archive
from ._about import about_run as about_run
from ._advice import NextStep as NextStep
from ._advice import about_refined as about_refined
from ._advice import next_steps as next_steps
from ._arviz import leave_one_out as leave_one_out
from ._arviz import named_columns as named_columns
from ._arviz import require_finite as require_finite
from ._codes import Code as Code
from ._codes import Doubt as Doubt
from ._cost import Cost as Cost
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
from ._fit import Fit as Fit
from ._fit import gathered as gathered
from ._fit import raise_if_diverged as raise_if_diverged
from ._json import rows_of as rows_of
from ._names import element_name as element_name
from ._npz import write_npz as write_npz
from ._numbers import Numbers as Numbers
from ._parameters import ParameterChecks as ParameterChecks
from ._posterior import Posterior as Posterior
from ._posterior import load as load
from ._record import Record as Record
from ._record import read_record as read_record
from ._refined import RefinedDraws as RefinedDraws
from ._status import Status as Status
from ._table import Parameter as Parameter
from ._table import Shown as Shown
from ._table import Table as Table
from ._verdicts import about as about
from ._verdicts import explained as explained
from ._verdicts import numbers_of as numbers_of
from ._verdicts import table_of as table_of
from ._verdicts import trusted_for as trusted_for

__all__ = [
    "ChainDiagnostics",
    "Diagnostics",
    "FitDiagnostics",
    "NotFinite",
    "ParticleDiagnostics",
    "SampleDifference",
    "TrainDiagnostics",
]
