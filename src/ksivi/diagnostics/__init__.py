"""Whether to believe a posterior, and how an objective and a family behave."""

from ._differences import Difference, difference, sliced_distance
from ._discrepancy import Discrepancy, discrepancy
from ._gradients import gradient_variance
from ._importance import Importance, importance, log_mean_weight, truncated_weights
from ._movement import Movement, movement
from ._pareto import khat_threshold, pareto_khat
from ._smoothness import jacobian_lipschitz, jacobian_norms
from ._witness import Witness, witness

__all__ = [
    "Difference",
    "Discrepancy",
    "Importance",
    "Movement",
    "Witness",
    "difference",
    "discrepancy",
    "gradient_variance",
    "importance",
    "jacobian_lipschitz",
    "jacobian_norms",
    "khat_threshold",
    "log_mean_weight",
    "movement",
    "pareto_khat",
    "sliced_distance",
    "truncated_weights",
    "witness",
]
