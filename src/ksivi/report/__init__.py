"""Figures and pages."""

from .figures import draws_and_contours

__all__ = ["draws_and_contours"]
