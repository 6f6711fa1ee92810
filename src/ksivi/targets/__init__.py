"""What is approximated: log densities, their scores, and views of them."""

from .affine import Affine
from .numpyro import from_numpyro
from .stein import stein_ratio
from .supports import Support
from .target import Layout, Target

__all__ = ["Affine", "Layout", "Support", "Target", "from_numpyro", "stein_ratio"]
