"""Whether to believe a posterior, and how an objective and a family behave."""

from .gradients import gradient_variance
from .importance import Importance, importance
from .smoothness import jacobian_lipschitz, jacobian_norms

__all__ = ["Importance", "gradient_variance", "importance", "jacobian_lipschitz", "jacobian_norms"]
