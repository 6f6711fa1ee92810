"""Methods side by side on one problem: the recipes, and the distances to the truth."""

from . import recipes
from .compare import Compared, compare, distance_floor
from .recipes import METHODS, PRESETS, Recipe, recipe

__all__ = ["METHODS", "PRESETS", "Compared", "Recipe", "compare", "distance_floor", "recipe", "recipes"]
