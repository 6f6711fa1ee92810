"""`train`, and the host loop that `train`, `run` and `fit` share."""

from ._callbacks import Callback, Chunk
from ._callbacks import stop_requested as stop_requested
from ._checkpoints import Checkpoints as Checkpoints
from ._checkpoints import as_checkpoints as as_checkpoints
from ._chunk_result import ChunkResult as ChunkResult
from ._host import Host as Host
from ._logs import JSONLines as JSONLines
from ._logs import TensorBoard as TensorBoard
from ._outcome import fits_of as fits_of
from ._progress import ProgressBar
from ._progress import Stages as Stages
from ._progress import show_progress as show_progress
from ._progress import stages as stages
from ._signals import handle_sigterm as handle_sigterm
from ._single import SingleRun as SingleRun
from ._single import single_run as single_run
from ._snapshots import restored as restored
from ._start import on_devices as on_devices
from ._task import Progress as Progress
from ._task import Task as Task
from ._train import train as train
from ._training import Training as Training
from ._training import new_training as new_training

__all__ = ["Callback", "Chunk", "ProgressBar"]
