"""ksivi: kernel semi-implicit variational inference, from a log density to posterior draws."""

from . import families, kernels, metrics, problems
from .families import SemiImplicit
from .objectives import KSIVI, Annealing
from .posterior import Cost, Fit, Posterior, Status, load
from .targets import Target
from .training import Chunk, train

__version__ = "0.1.0"

__all__ = [
    "KSIVI",
    "Annealing",
    "Chunk",
    "Cost",
    "Fit",
    "Posterior",
    "SemiImplicit",
    "Status",
    "Target",
    "families",
    "kernels",
    "load",
    "metrics",
    "problems",
    "train",
]
