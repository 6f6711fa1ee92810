"""Training: one loop for every objective."""

from .progress import ProgressBar, wanted
from .run import Callback, Chunk, Run, told_to_stop
from .train import train
from .trouble import Trouble, early_ratio, find_trouble

__all__ = [
    "Callback",
    "Chunk",
    "ProgressBar",
    "Run",
    "Trouble",
    "early_ratio",
    "find_trouble",
    "told_to_stop",
    "train",
    "wanted",
]
