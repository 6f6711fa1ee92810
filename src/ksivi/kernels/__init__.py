"""Kernels k(x, y), their bandwidths, and the tiled pairwise engine under them."""

from .bandwidths import AbstractBandwidth, Fixed, Median
from .base import AbstractKernel, AbstractScaledKernel, Sum
from .distances import squared_differences
from .pairwise import fold_rows, map_rows, pair_mean
from .shapes import IMQ, Gaussian, Laplace, Matern, Riesz
from .stein import stein_direction, stein_gram, stein_mean

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
    "fold_rows",
    "map_rows",
    "pair_mean",
    "squared_differences",
    "stein_direction",
    "stein_gram",
    "stein_mean",
]
