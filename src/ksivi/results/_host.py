"""Posteriors whose draws and density need no compiled program."""

import numpy as np
from jaxtyping import Float

from .._core.mixtures import Mixture
from .._core.warped import Warped
from ..families import Empirical, GaussianMixture, SemiImplicit, WarpedGaussian
from ..targets import Affine

Family = SemiImplicit | GaussianMixture | WarpedGaussian | Empirical


def on_host(family: Family, coordinates: Affine | None) -> Mixture | Warped | None:
    """The family in NumPy, in the target's coordinates; None if it has no such form."""
    mixture = family.on_host()
    if coordinates is None or not isinstance(mixture, Mixture):
        return mixture if coordinates is None else None
    loc, scale = (np.asarray(a, np.float64) for a in (coordinates.loc, coordinates.scale))
    matrix = np.diag(scale) if scale.ndim == 1 else scale
    roots = _lower_triangular(matrix[None] @ mixture.roots)
    return Mixture(mixture.shares, loc[None] + mixture.means @ matrix.T, roots)


def _lower_triangular(roots: Float[np.ndarray, "k d d"]) -> Float[np.ndarray, "k d d"]:
    """The lower triangular L with L Lᵀ = R Rᵀ, from Rᵀ = Q Lᵀ."""
    lower = np.swapaxes(np.linalg.qr(np.swapaxes(roots, 1, 2), mode="r"), 1, 2)
    return lower * np.sign(np.diagonal(lower, axis1=1, axis2=2))[:, None, :]
