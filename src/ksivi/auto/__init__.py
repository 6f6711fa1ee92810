"""`fit`: posterior draws without tuning."""

from ._fit import fit
from ._recipe import Recipe
from ._refine import Refined

__all__ = ["Recipe", "Refined", "fit"]
