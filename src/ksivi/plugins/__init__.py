"""ksivi inside other tools."""
from ._pymc import pymc
__all__ = ["pymc"]
