"""Variational families q(x) = ∫ q(x|z) q(z) dz."""

from .conditional import DiagonalGaussian
from .empirical import Empirical
from .frozen import Frozen, groups, trainable
from .layers import Triangular
from .mixing import AbstractMixing, GaussianMixing, SampledMixing, WideMixing
from .networks import MLP, Constant
from .semi_implicit import SemiImplicit

__all__ = [
    "MLP",
    "AbstractMixing",
    "Constant",
    "DiagonalGaussian",
    "Empirical",
    "Frozen",
    "GaussianMixing",
    "SampledMixing",
    "SemiImplicit",
    "Triangular",
    "WideMixing",
    "groups",
    "trainable",
]
