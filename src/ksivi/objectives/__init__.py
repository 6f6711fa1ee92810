"""Objectives: one file each, all through the same door."""

from .base import AbstractObjective
from .jeffreys import Jeffreys
from .ksivi import KSIVI
from .likelihood import MaximumLikelihood
from .prediction import MeanPrediction
from .schedules import Annealing, Decay
from .sivi import SIVI
from .sivi_sm import SIVISM
from .uivi import UIVI
from .wake import Wake

__all__ = [
    "KSIVI",
    "SIVI",
    "SIVISM",
    "UIVI",
    "AbstractObjective",
    "Annealing",
    "Decay",
    "Jeffreys",
    "MaximumLikelihood",
    "MeanPrediction",
    "Wake",
]
