"""Kernels k(x, y), their bandwidths, and the tiled pairwise engine under them."""

from ._bandwidths import AbstractBandwidth, Fixed, Median
from ._distances import squared_differences
from ._kernel import AbstractKernel, AbstractScaledKernel, Sum
from ._kernel import as_kernel as as_kernel
from ._pairwise import fold_rows, map_rows, pair_mean
from ._shapes import IMQ, Gaussian, Laplace, Matern, Riesz
from ._stein import stein_direction, stein_gram, stein_mean

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
