"""Methods side by side on one problem: the recipes, and the distances to the truth."""

from . import recipes
from .compare import Compared, Truth, compare, know_truth
from .recipes import METHODS, PRESETS, Recipe, recipe

__all__ = ["METHODS", "PRESETS", "Compared", "Recipe", "Truth", "compare", "know_truth", "recipe", "recipes"]
