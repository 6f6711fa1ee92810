"""The built-in problems by name, for the command line and for files that name a problem."""

from collections.abc import Callable

from ._diffusion import diffusion
from ._problem import AbstractProblem
from ._toys import banana, eight_gaussians, multimodal, student_t, x_shaped
from ._waveform import waveform

BY_NAME: dict[str, Callable[..., AbstractProblem]] = {
    "banana": banana,
    "multimodal": multimodal,
    "x-shaped": x_shaped,
    "student-t": student_t,
    "eight-gaussians": eight_gaussians,
    "waveform": waveform,
    "diffusion": diffusion,
}
