"""Objectives: one file each, all through the same door."""

from .annealing import Annealing
from .base import AbstractObjective
from .ksivi import KSIVI

__all__ = ["KSIVI", "AbstractObjective", "Annealing"]
