"""Whether to believe a posterior, and how an objective and a family behave."""

from .discrepancy import Discrepancy, discrepancy
from .gradients import gradient_variance
from .importance import Importance, importance, log_mean_weight, truncated_weights
from .movement import Movement, mean_shift, movement, width_change
from .pareto import khat_threshold, pareto_khat
from .smoothness import jacobian_lipschitz, jacobian_norms
from .witness import Witness, witness

__all__ = [
    "Discrepancy",
    "Importance",
    "Movement",
    "Witness",
    "discrepancy",
    "gradient_variance",
    "importance",
    "jacobian_lipschitz",
    "jacobian_norms",
    "khat_threshold",
    "log_mean_weight",
    "mean_shift",
    "movement",
    "pareto_khat",
    "truncated_weights",
    "width_change",
    "witness",
]
