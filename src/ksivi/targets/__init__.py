"""What is approximated: log densities, their scores, and views of them."""

from .affine import Affine
from .stein import stein_ratio
from .target import Layout, Target

__all__ = ["Affine", "Layout", "Target", "stein_ratio"]
