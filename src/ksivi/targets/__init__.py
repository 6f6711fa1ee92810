"""What is approximated: log densities, their scores, and views of them."""

from .affine import Affine
from .target import Layout, Target

__all__ = ["Affine", "Layout", "Target"]
