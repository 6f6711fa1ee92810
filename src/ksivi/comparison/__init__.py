"""Methods side by side on one problem: the recipes, and the distances to the truth."""

from . import _recipes as recipes
from ._compare import Compared, Truth, compare, know_truth, redraw, sliced_distances
from ._plans import Method, Plan
from ._recipes import METHODS, PRESETS, Recipe, paper_plan, recipe

__all__ = [
    "METHODS",
    "PRESETS",
    "Compared",
    "Method",
    "Plan",
    "Recipe",
    "Truth",
    "compare",
    "know_truth",
    "paper_plan",
    "recipe",
    "recipes",
    "redraw",
    "sliced_distances",
]
