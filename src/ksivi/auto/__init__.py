"""`fit`: no tuning."""

from .fit import fit
from .recipe import Recipe

__all__ = ["Recipe", "fit"]
