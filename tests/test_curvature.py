"""Axes of a Gaussian by the mean curvature of log p, on targets whose covariance is known."""

import numpy as np
import pytest

from ksivi._core.roots import LowRankRoot, diagonal_root
from ksivi.auto._curvature import sharpened

DIM = 600
SDS = np.geomspace(0.01, 100, DIM)
WIDTHS = np.array([6.0, 2.0, 1.5, 0.5, 0.2])
AXES = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, len(WIDTHS))))[0]
TRUTH = LowRankRoot(SDS, AXES, WIDTHS)
MEAN = np.linspace(-1, 1, DIM)


def normal(x):
    """log p and its score for N(MEAN, R Rᵀ), where R is TRUTH."""
    u = TRUTH.solve(x - MEAN)
    precision_u = -(u + (u @ AXES) * (1 / WIDTHS - 1) @ AXES.T) / SDS
    return -0.5 * np.sum(u**2, axis=1), precision_u


@pytest.mark.parametrize("seed", range(3))
def test_a_diagonal_gaussian_gets_the_axes_that_it_lacks(seed):
    found = sharpened(np.random.default_rng(seed), normal, MEAN, diagonal_root(SDS))
    # In coordinates in which the target is N(0, I), the widths of the found Gaussian are 1.
    widths = np.linalg.svd(TRUTH.solve(found.times(np.eye(DIM))), compute_uv=False)
    np.testing.assert_allclose(widths, 1, atol=0.02)
    assert found.log_det() == pytest.approx(TRUTH.log_det(), abs=0.01)


def test_a_gaussian_without_faults_stays_as_it_is():
    found = sharpened(np.random.default_rng(0), normal, MEAN, TRUTH)
    np.testing.assert_allclose(np.sort(found.factors), np.sort(WIDTHS), rtol=1e-6)


def test_a_change_that_lowers_the_elbo_is_not_made():
    """Between two modes along an axis the curvature has the other sign."""

    def two_modes(x):
        values, scores = normal(x)
        along = (x - MEAN) / SDS @ AXES[:, 0]
        return values + np.log(np.cosh(along)), scores + np.outer(np.tanh(along), AXES[:, 0] / SDS)

    def elbo(root):
        noise = np.random.default_rng(1).standard_normal((256, DIM))
        return np.mean(two_modes(MEAN + root.times(noise))[0]) + root.log_det()

    for root in (diagonal_root(SDS), TRUTH):
        found = sharpened(np.random.default_rng(0), two_modes, MEAN, root)
        assert elbo(found) >= elbo(root) - 1e-6


def test_scores_that_are_not_finite_leave_the_gaussian_as_it_is():
    def broken(x):
        values, scores = normal(x)
        return values, np.where(x > 0, np.nan, scores)

    found = sharpened(np.random.default_rng(0), broken, MEAN, TRUTH)
    np.testing.assert_allclose(np.sort(found.factors), np.sort(WIDTHS), rtol=1e-6)
