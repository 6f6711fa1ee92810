"""Checks of a posterior, and of the gradients of an objective."""

from ..results import Discrepancy
from ._bounds import Better as Better
from ._bounds import error_bounds as error_bounds
from ._compare_models import compare_models
from ._differences import SMALL_CHANGES as SMALL_CHANGES
from ._differences import Difference, difference
from ._differences import sliced_distance as sliced_distance
from ._discrepancy import discrepancy
from ._gradients import gradient_variance
from ._importance import WIDENING as WIDENING
from ._importance import Importance, importance
from ._importance import truncated_weights as truncated_weights
from ._importance import weighted as weighted
from ._model_comparison import ComparedModel, ModelComparison
from ._movement import Movement, movement
from ._movement import chains as chains
from ._pareto import khat_threshold as khat_threshold
from ._pareto import pareto_khat
from ._smoothness import jacobian_lipschitz as jacobian_lipschitz
from ._smoothness import jacobian_norms as jacobian_norms
from ._witness import Witness, witness

__all__ = [
    "ComparedModel",
    "Difference",
    "Discrepancy",
    "Importance",
    "ModelComparison",
    "Movement",
    "Witness",
    "compare_models",
    "difference",
    "discrepancy",
    "gradient_variance",
    "importance",
    "movement",
    "pareto_khat",
    "witness",
]
