"""Training: one loop for every objective."""

from .callbacks import Callback, Chunk, told_to_stop
from .checkpoints import Checkpoints, as_checkpoints
from .logs import JSONLines, TensorBoard
from .progress import ProgressBar, wanted
from .run import Run
from .signals import heeding_sigterm
from .train import train
from .trouble import Trouble, early_ratio, find_trouble

__all__ = [
    "Callback",
    "Checkpoints",
    "Chunk",
    "JSONLines",
    "ProgressBar",
    "Run",
    "TensorBoard",
    "Trouble",
    "as_checkpoints",
    "early_ratio",
    "find_trouble",
    "heeding_sigterm",
    "told_to_stop",
    "train",
    "wanted",
]
