"""Training: one loop for every objective."""

from ._callbacks import Callback, Chunk, told_to_stop
from ._checkpoints import Checkpoints, as_checkpoints
from ._host import Run
from ._logs import JSONLines, TensorBoard
from ._progress import ProgressBar, wanted
from ._signals import heeding_sigterm
from ._start import divided as divided
from ._train import train
from ._trouble import Trouble, early_ratio, find_trouble

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
