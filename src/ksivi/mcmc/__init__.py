"""Markov chain Monte Carlo, on BlackJAX: many chains at once, and reference draws to measure others by."""

from .mala import MALA
from .nuts import NUTS
from .reference import reference_draws
from .sgld import SGLD

__all__ = ["MALA", "NUTS", "SGLD", "reference_draws"]
