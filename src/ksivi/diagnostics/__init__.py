"""Whether to believe a posterior, and how an objective and a family behave."""

from .differences import Difference, difference, sliced_distance
from .discrepancy import Discrepancy, discrepancy
from .gradients import gradient_variance
from .importance import Importance, importance, log_mean_weight, truncated_weights
from .movement import Movement, movement
from .pareto import khat_threshold, pareto_khat
from .smoothness import jacobian_lipschitz, jacobian_norms
from .witness import Witness, witness

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
