"""Figures and pages."""

from .comparison import methods_and_truth
from .errors import witness_arrows
from .figures import draws_and_contours

__all__ = ["draws_and_contours", "methods_and_truth", "witness_arrows"]
