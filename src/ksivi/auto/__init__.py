"""`fit`: no tuning."""

from .fit import fit
from .recipe import Recipe
from .refine import Refined

__all__ = ["Recipe", "Refined", "fit"]
