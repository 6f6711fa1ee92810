"""Roots of low rank and warped Gaussians with known numbers."""

import numpy as np

from ksivi._core.roots import LowRankRoot
from ksivi._core.warped import Warped


def low_rank(dim=6, rank=2, seed=0):
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    return LowRankRoot(rng.uniform(0.5, 2, dim), vectors, rng.uniform(0.2, 3, rank))


def warped(root=None):
    """Every coordinate with a skew and tails of its own."""
    root, rng = low_rank() if root is None else root, np.random.default_rng(2)
    about = rng.normal(size=root.dim), rng.uniform(0.1, 5, root.dim)
    shape = rng.uniform(-0.5, 0.5, root.dim), rng.uniform(0.6, 1.4, root.dim)
    return Warped(*about, *shape, root.scaled(1 / root.lengths()))


def covariance(root):
    matrix = root.dense().matrix
    return matrix @ matrix.T
