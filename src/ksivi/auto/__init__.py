"""`fit`: posterior draws without tuning."""

from ._fit import fit as fit
from ._recipe import Recipe as Recipe
from ._refined import Refined
from ._whitened import whitened as whitened

__all__ = ["Refined"]
