"""ksivi: kernel semi-implicit variational inference, from a log density to posterior draws."""

import importlib
from typing import Any

from . import diagnostics, families, kernels, metrics
from ._core.version import __version__ as __version__
from .auto import Recipe, fit
from .families import SemiImplicit
from .methods import KSDD, MALA, MIED, NUTS, SGLD, SVGD, reference_draws, run
from .objectives import (
    KSIVI,
    SIVI,
    SIVISM,
    UIVI,
    Annealing,
    Decay,
    Jeffreys,
    MaximumLikelihood,
    MeanPrediction,
    Wake,
)
from .results import Cost, Fit, Posterior, Record, Status, load, read_record
from .targets import Rows, Target, from_callback, from_numpyro, from_pymc, from_torch, supports
from .training import Chunk as Chunk
from .training import JSONLines, TensorBoard, train

__all__ = [
    "KSDD",
    "KSIVI",
    "MALA",
    "MIED",
    "NUTS",
    "SGLD",
    "SIVI",
    "SIVISM",
    "SVGD",
    "UIVI",
    "Annealing",
    "Cost",
    "Decay",
    "Fit",
    "JSONLines",
    "Jeffreys",
    "MaximumLikelihood",
    "MeanPrediction",
    "Posterior",
    "Recipe",
    "Record",
    "Rows",
    "SemiImplicit",
    "Status",
    "Target",
    "TensorBoard",
    "Wake",
    "calibration",
    "diagnostics",
    "families",
    "fit",
    "from_callback",
    "from_numpyro",
    "from_pymc",
    "from_torch",
    "kernels",
    "load",
    "metrics",
    "problems",
    "read_record",
    "reference_draws",
    "report",
    "run",
    "supports",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports packages that few programs need when they are first used."""
    if name in ("calibration", "plugins", "problems", "report"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
