"""Training: one loop for every objective."""

from .progress import ProgressBar
from .run import Callback, Chunk
from .train import train

__all__ = ["Callback", "Chunk", "ProgressBar", "train"]
