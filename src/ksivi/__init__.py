"""ksivi: kernel semi-implicit variational inference, from a log density to posterior draws."""

from . import diagnostics, families, kernels, metrics, problems, report
from .auto import Recipe, fit
from .families import SemiImplicit
from .mcmc import MALA, NUTS, SGLD, reference_draws
from .methods import run
from .objectives import KSIVI, SIVI, SIVISM, UIVI, Annealing, Decay, Jeffreys, MaximumLikelihood, MeanPrediction, Wake
from .particles import KSDD, MIED, SVGD
from .posterior import Cost, Fit, Posterior, Status, load
from .targets import Target, from_callback, from_numpyro, from_pymc, from_torch, supports
from .training import Chunk, train

__version__ = "0.1.0"

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
    "Chunk",
    "Cost",
    "Decay",
    "Fit",
    "Jeffreys",
    "MaximumLikelihood",
    "MeanPrediction",
    "Posterior",
    "Recipe",
    "SemiImplicit",
    "Status",
    "Target",
    "Wake",
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
    "reference_draws",
    "report",
    "run",
    "supports",
    "train",
]
