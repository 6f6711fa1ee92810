"""Objectives: losses for semi-implicit families, one file each.

Users import the first ones from the top, as `ksivi.KSIVI`, and rivals published later from here, as
`ksivi.objectives.KPG`. This package adds the interface of a new one.
"""

from ._aisivi import AISIVI as AISIVI
from ._amortized_svgd import AmortizedSVGD as AmortizedSVGD
from ._denoised_score import DenoisedScore as DenoisedScore
from ._jeffreys import Jeffreys as Jeffreys
from ._kpg import KPG as KPG
from ._kpg_is import KPGIS as KPGIS
from ._ksd import Estimator as Estimator
from ._ksivi import KSIVI as KSIVI
from ._likelihood import MaximumLikelihood as MaximumLikelihood
from ._objective import AbstractObjective
from ._prediction import MeanPrediction as MeanPrediction
from ._pvi import PVI as PVI
from ._schedules import Annealing as Annealing
from ._schedules import Decay as Decay
from ._sivi import SIVI as SIVI
from ._sivi_sm import SIVISM as SIVISM
from ._tilt import Tilt as Tilt
from ._uivi import UIVI as UIVI
from ._wake import Wake as Wake

__all__ = ["AbstractObjective"]
