"""Kernels k(x, y), their bandwidths, and the tiled pairwise engine under them."""

from .bandwidths import AbstractBandwidth, Fixed, Median
from .base import AbstractKernel, AbstractScaledKernel, Sum
from .pairwise import pair_mean
from .shapes import IMQ, Gaussian, Laplace, Matern, Riesz
from .stein import stein_gram, stein_mean

__all__ = [
    "IMQ",
    "AbstractBandwidth",
    "AbstractKernel",
    "AbstractScaledKernel",
    "Fixed",
    "Gaussian",
    "Laplace",
    "Matern",
    "Median",
    "Riesz",
    "Sum",
    "pair_mean",
    "stein_gram",
    "stein_mean",
]
