"""Problems to try methods on: a target, its truth, its name."""

from ._bnn import BNN, Hyper, bnn
from ._data import locate
from ._diffusion import diffusion
from ._own import from_file, from_module
from ._problem import AbstractProblem
from ._toys import Toy, banana, multimodal, student_t, x_shaped
from ._waveform import waveform

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
