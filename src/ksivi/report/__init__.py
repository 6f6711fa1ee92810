"""Figures and pages."""

from .comparison import methods_and_truth
from .comparison_page import comparison_page
from .errors import witness_arrows
from .figures import draws_and_contours
from .run_page import run_page

__all__ = ["comparison_page", "draws_and_contours", "methods_and_truth", "run_page", "witness_arrows"]
