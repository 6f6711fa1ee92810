"""Variational families q(x) = ∫ q(x|z) q(z) dz."""

from ._conditional import DiagonalGaussian
from ._empirical import Empirical
from ._frozen import Frozen, groups, trainable
from ._layers import Triangular
from ._log_normals import exact_log_normals as exact_log_normals
from ._log_normals import log_normal as log_normal
from ._mixing import AbstractMixing, GaussianMixing, ModeMixing, SampledMixing, WideMixing
from ._mixing import ParticleMixing as ParticleMixing
from ._mixture import GaussianMixture
from ._networks import MLP, Constant, PerMode
from ._semi_implicit import Noise as Noise
from ._semi_implicit import SemiImplicit
from ._warped import WarpedGaussian

__all__ = [
    "MLP",
    "AbstractMixing",
    "Constant",
    "DiagonalGaussian",
    "Empirical",
    "Frozen",
    "GaussianMixing",
    "GaussianMixture",
    "ModeMixing",
    "PerMode",
    "SampledMixing",
    "SemiImplicit",
    "Triangular",
    "WarpedGaussian",
    "WideMixing",
    "groups",
    "trainable",
]
