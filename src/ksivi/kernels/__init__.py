"""Kernels k(x, y), their bandwidths, and sums over all pairs of two samples."""

from ._bandwidths import AbstractBandwidth, Fixed, Median
from ._distances import squared_differences as squared_differences
from ._distances import squared_euclidean
from ._kernel import AbstractKernel, AbstractScaledKernel, Sum
from ._kernel import as_kernel as as_kernel
from ._kernel import as_smooth_kernel as as_smooth_kernel
from ._pairwise import fold_rows as fold_rows
from ._pairwise import kernel_mean as kernel_mean
from ._pairwise import map_rows as map_rows
from ._pairwise import pair_mean
from ._shapes import IMQ, Gaussian, Laplace, Matern, Riesz
from ._stein import SteinOperator as SteinOperator
from ._stein import squared_length as squared_length
from ._stein import stein_direction, stein_gram, stein_mean
from ._stein import stein_pair_mean as stein_pair_mean

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
    "squared_euclidean",
    "stein_direction",
    "stein_gram",
    "stein_mean",
]
