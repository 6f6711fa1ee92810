"""Problems to try methods on: a target, its truth, its name."""

from .base import AbstractProblem
from .diffusion import diffusion
from .own import from_file
from .toys import Toy, banana, multimodal, student_t, x_shaped
from .waveform import waveform

__all__ = [
    "AbstractProblem",
    "Toy",
    "banana",
    "diffusion",
    "from_file",
    "multimodal",
    "student_t",
    "waveform",
    "x_shaped",
]
