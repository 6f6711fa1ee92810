"""Objectives: losses for semi-implicit families, one file each."""

from ._jeffreys import Jeffreys
from ._ksivi import KSIVI
from ._likelihood import MaximumLikelihood
from ._objective import AbstractObjective
from ._prediction import MeanPrediction
from ._schedules import Annealing, Decay
from ._sivi import SIVI
from ._sivi_sm import SIVISM
from ._uivi import UIVI
from ._wake import Wake

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
