"""ksivi: kernel semi-implicit variational inference, from a log density to posterior draws."""

from . import diagnostics, families, kernels, metrics, problems
from .families import SemiImplicit
from .objectives import KSIVI, SIVI, SIVISM, UIVI, Annealing, Decay
from .posterior import Cost, Fit, Posterior, Status, load
from .targets import Target
from .training import Chunk, train

__version__ = "0.1.0"

__all__ = [
    "KSIVI",
    "SIVI",
    "SIVISM",
    "UIVI",
    "Annealing",
    "Chunk",
    "Cost",
    "Decay",
    "Fit",
    "Posterior",
    "SemiImplicit",
    "Status",
    "Target",
    "diagnostics",
    "families",
    "kernels",
    "load",
    "metrics",
    "problems",
    "train",
]
