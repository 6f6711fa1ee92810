"""Problems to try methods on: a target, its truth, its name."""

from .base import AbstractProblem
from .bnn import BNN, Hyper, bnn
from .data import locate
from .diffusion import diffusion
from .own import from_file, from_module
from .toys import Toy, banana, multimodal, student_t, x_shaped
from .waveform import waveform

__all__ = [
    "BNN",
    "AbstractProblem",
    "Hyper",
    "Toy",
    "banana",
    "bnn",
    "diffusion",
    "from_file",
    "from_module",
    "locate",
    "multimodal",
    "student_t",
    "waveform",
    "x_shaped",
]
