"""The version of ksivi."""

__version__ = "0.1.0"
