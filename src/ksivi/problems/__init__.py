"""Problems to try methods on. A problem has a name, a target, and a way to draw from the truth."""

from ._bnn import AUTHORS_HYPER as AUTHORS_HYPER
from ._bnn import BNN, Hyper, bnn
from ._by_name import BY_NAME as BY_NAME
from ._data import locate as locate
from ._diffusion import diffusion
from ._hard import eight_schools as eight_schools
from ._hard import two_lines as two_lines
from ._problem import AbstractProblem
from ._toys import Toy as Toy
from ._toys import banana, eight_gaussians, multimodal, student_t, x_shaped
from ._user import from_file
from ._user import from_module as from_module
from ._waveform import waveform

__all__ = [
    "BNN",
    "AbstractProblem",
    "Hyper",
    "banana",
    "bnn",
    "diffusion",
    "eight_gaussians",
    "from_file",
    "multimodal",
    "student_t",
    "waveform",
    "x_shaped",
]
