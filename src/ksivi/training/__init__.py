"""Training: one loop for every objective."""

from .logs import JSONLines, TensorBoard
from .progress import ProgressBar, wanted
from .run import Callback, Chunk, Run, told_to_stop
from .train import train
from .trouble import Trouble, early_ratio, find_trouble

__all__ = [
    "Callback",
    "Chunk",
    "JSONLines",
    "ProgressBar",
    "Run",
    "TensorBoard",
    "Trouble",
    "early_ratio",
    "find_trouble",
    "told_to_stop",
    "train",
    "wanted",
]
