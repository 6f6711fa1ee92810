"""Training: one loop for every objective."""

from .progress import ProgressBar
from .train import Callback, Chunk, train

__all__ = ["Callback", "Chunk", "ProgressBar", "train"]
