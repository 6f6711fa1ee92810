"""Whether to believe a posterior."""

from .importance import Importance, importance

__all__ = ["Importance", "importance"]
