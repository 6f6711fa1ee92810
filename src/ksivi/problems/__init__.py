"""Problems to try methods on: a target, its truth, its name."""

from .base import AbstractProblem
from .diffusion import diffusion
from .toys import Toy, banana, multimodal, x_shaped
from .waveform import waveform

__all__ = ["AbstractProblem", "Toy", "banana", "diffusion", "multimodal", "waveform", "x_shaped"]
