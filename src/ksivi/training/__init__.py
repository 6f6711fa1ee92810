"""Training: one loop for every objective."""

from .progress import ProgressBar
from .train import Chunk, train

__all__ = ["Chunk", "ProgressBar", "train"]
