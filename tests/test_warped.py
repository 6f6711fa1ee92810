"""Gaussians with warped coordinates: their roots, their density, and the family."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

import ksivi
from ksivi._core.roots import DenseRoot
from ksivi._core.warped import Warped, gaussian
from ksivi.families import WarpedGaussian
from warps import covariance, low_rank, warped

KEY = jax.random.key(0)
DIM = 6
LAYOUT = (("x", (DIM,)),)


def dense():
    return DenseRoot(np.random.default_rng(1).standard_normal((DIM, DIM)) + 2 * np.eye(DIM))


def points(n=20, dim=DIM):
    return np.random.default_rng(3).standard_normal((n, dim))


@pytest.mark.parametrize("root", [dense(), low_rank()], ids=["dense", "low rank"])
def test_roots_do_what_their_matrices_do(root):
    matrix, x = root.dense().matrix, points()
    np.testing.assert_allclose(root.times(x), x @ matrix.T)
    np.testing.assert_allclose(root.pulled(x), x @ matrix)
    np.testing.assert_allclose(root.solve(x), np.linalg.solve(matrix, x.T).T)
    np.testing.assert_allclose(root.log_det(), np.linalg.slogdet(matrix)[1])
    np.testing.assert_allclose(root.lengths(), np.sqrt(np.diag(matrix @ matrix.T)))
    factors = np.arange(1.0, DIM + 1)
    np.testing.assert_allclose(root.scaled(factors).dense().matrix, factors[:, None] * matrix)
    assert root.dim == DIM


@pytest.mark.parametrize("root", [dense(), low_rank()], ids=["dense", "low rank"])
def test_a_stretched_root_has_the_variances_along_the_new_vectors(root):
    vectors, factors = low_rank(seed=5).vectors, np.array([0.5, 4.0])
    stretch = np.eye(DIM) + (vectors * (factors - 1)) @ vectors.T
    expected = root.dense().matrix @ stretch
    found = root.stretched(vectors, factors)
    assert type(found) is type(root)
    np.testing.assert_allclose(covariance(found), expected @ expected.T, atol=1e-12)
    nothing = root.stretched(np.zeros((DIM, 0)), np.zeros(0))
    np.testing.assert_allclose(covariance(nothing), covariance(root), atol=1e-12)


def test_a_low_rank_covariance_is_diagonal_plus_low_rank():
    root = low_rank()
    extra = (root.scales[:, None] * root.vectors) * np.sqrt(np.abs(root.factors**2 - 1))
    signs = np.sign(root.factors**2 - 1)
    expected = np.diag(root.scales**2) + (extra * signs) @ extra.T
    np.testing.assert_allclose(covariance(root), expected, atol=1e-12)


@pytest.mark.parametrize(("skew", "tail"), [(0, 1), (0.5, 1), (-0.4, 0.6), (0.3, 1.4)])
def test_the_density_integrates_to_one(skew, tail):
    one = Warped(*np.array([[2.0], [0.3], [skew], [tail]]), DenseRoot(np.eye(1)))
    density = lambda x: float(np.exp(one.log_density(np.array([[x]])))[0])  # noqa: E731
    total = sum(quad(density, *ends, limit=200)[0] for ends in [(-np.inf, 2), (2, np.inf)])
    assert abs(total - 1) < 1e-6
    mean = sum(
        quad(lambda x: x * density(x), *ends, limit=200)[0] for ends in [(-np.inf, 2), (2, np.inf)]
    )
    np.testing.assert_allclose(one.linear()[0], [mean], rtol=1e-4)


@pytest.mark.parametrize("root", [dense(), low_rank()], ids=["dense", "low rank"])
def test_without_a_warp_it_is_the_gaussian(root):
    mean = np.arange(DIM)
    plain = gaussian(mean, root)
    x = mean + root.times(2 * points())
    expected = multivariate_normal(mean, covariance(root)).logpdf(x)
    np.testing.assert_allclose(plain.log_density(x), expected, rtol=1e-9)
    found, found_root = plain.linear()
    np.testing.assert_allclose(found, mean, atol=1e-12)
    np.testing.assert_allclose(covariance(found_root), covariance(root), atol=1e-10)
    np.testing.assert_allclose(plain.diagonal()[1], root.lengths())


def test_the_density_is_that_of_the_change_of_variables():
    """log q(x) = log N(ξ) − log |det ∂x/∂ξ|, by differences."""
    one, xi, h = warped(), points(3), 1e-6
    for row, x in zip(xi, one.at(xi), strict=True):
        steps = (one.at(row + h * np.eye(DIM)) - one.at(row - h * np.eye(DIM))) / (2 * h)
        expected = multivariate_normal(np.zeros(DIM)).logpdf(row) - np.linalg.slogdet(steps)[1]
        np.testing.assert_allclose(one.log_density(x[None])[0], expected, rtol=1e-6)
    np.testing.assert_allclose(one.normal(one.at(xi)), one.root.times(xi), atol=1e-10)


def test_low_rank_and_its_dense_root_are_one_distribution():
    low = warped()
    full = low._replace(root=low.root.dense())
    xi = points()
    np.testing.assert_allclose(low.at(xi), full.at(xi), rtol=1e-9)
    np.testing.assert_allclose(low.log_density(xi), full.log_density(xi), rtol=1e-9)


def assert_moments(draws, mean, covariance):
    """Within 5 standard errors of normal draws."""
    n, variances = len(draws), np.diag(covariance)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variances / n))
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / n)
    assert np.all(np.abs(np.cov(draws, rowvar=False) - covariance) < 5 * error)


def test_draws_of_a_gaussian_have_its_moments():
    plain, rng = gaussian(np.arange(DIM), low_rank()), np.random.default_rng(4)
    mean, root = plain.linear()
    draws, origins = plain.draws(rng, 20_000)
    assert_moments(draws, mean, covariance(root))
    assert not origins.any()
    assert_moments(np.asarray(WarpedGaussian.of(plain).sample(KEY, 20_000)), mean, covariance(root))


def test_means_and_widths_are_those_of_warped_draws():
    one = warped()
    draws, _ = one.draws(np.random.default_rng(4), 50_000)
    mean, sd = one.diagonal()
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * sd / np.sqrt(50_000))
    spread = np.sqrt(np.var((draws - mean) ** 2, axis=0) / 50_000) / (2 * sd)
    assert np.all(np.abs(draws.std(axis=0) - sd) < 5 * spread)


def test_a_wider_one_is_half_of_itself():
    one = warped()
    assert one.widened(1) is one
    half, x = one.widened(1.5), one.at(points())
    wide = one._replace(root=DenseRoot(1.5 * one.root.dense().matrix))
    expected = np.logaddexp(one.log_density(x), wide.log_density(x)) - np.log(2)
    np.testing.assert_allclose(half.log_density(x), expected)
    draws, is_wide = half.draws(np.random.default_rng(5), 20_000)
    assert abs(is_wide.mean() - 0.5) < 5 * 0.5 / np.sqrt(20_000)
    for part, sd in ((draws[is_wide == 0], 1.0), (draws[is_wide == 1], 1.5)):
        normal = one.normal(part)
        error = sd / np.sqrt(2 * len(part))
        assert np.all(np.abs(normal.std(axis=0) - sd) < 5 * error)


@pytest.mark.parametrize("is_dense", [False, True])
def test_the_family_and_the_host_agree(is_dense, x64):
    one = warped()
    one = one._replace(root=one.root.dense()) if is_dense else one
    family, xi = WarpedGaussian.of(one), points()
    x = one.at(xi)
    assert family.dim == DIM
    np.testing.assert_allclose(family.transport(jnp.asarray(xi))[0], x, rtol=1e-9)
    found = family.log_prob(KEY, jnp.asarray(x), 1)
    np.testing.assert_allclose(found, one.log_density(x), rtol=1e-9)
    jax.tree.map(np.testing.assert_array_equal, family.on_host(), one)


@pytest.mark.parametrize("root", [dense(), low_rank()], ids=["dense", "low rank"])
def test_the_family_works_with_strict_rank_promotion(root):
    family = WarpedGaussian.of(warped(root))
    with jax.numpy_rank_promotion("raise"):
        x, scores = family.transport(family.noise(KEY, 5))
        log_q = family.log_prob(KEY, x, 1)
    assert x.shape == scores.shape == (5, DIM)
    assert log_q.shape == (5,)


def test_single_precision_is_near_the_host():
    one = warped()
    family, x = WarpedGaussian.of(one), one.at(points())
    found = family.log_prob(KEY, jnp.asarray(x, jnp.float32), 1)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, one.log_density(x), atol=1e-3)


def test_scores_are_slopes_of_the_density(x64):
    one, h = warped(), 1e-6
    x, scores = WarpedGaussian.of(one).transport(jnp.asarray(points(4)))
    for j, shift in enumerate(h * np.eye(DIM)):
        up, down = one.log_density(np.asarray(x) + shift), one.log_density(np.asarray(x) - shift)
        np.testing.assert_allclose(scores[:, j], (up - down) / (2 * h), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("root", [dense(), low_rank()], ids=["dense", "low rank"])
def test_it_is_the_same_after_saving(tmp_path, root):
    family = WarpedGaussian.of(warped(root))
    posterior = ksivi.Posterior(family, None, LAYOUT)
    posterior.save(tmp_path / "it.safetensors")
    back = ksivi.load(tmp_path / "it.safetensors")
    assert isinstance(back.family, WarpedGaussian)
    jax.tree.map(np.testing.assert_array_equal, back.family, family)
    draws = posterior.sample(KEY, 100)
    np.testing.assert_array_equal(back.sample(KEY, 100), draws)
    np.testing.assert_array_equal(back.log_prob(KEY, draws), posterior.log_prob(KEY, draws))


ZERO, ONE = np.zeros(3), np.ones(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loc": 1.0}, "loc must be one finite number per coordinate"),
        ({"loc": np.zeros(0)}, "loc must be one finite number per coordinate"),
        ({"loc": "here"}, "loc must be one finite number per coordinate, got 'here'"),
        ({"scale": ONE[:2]}, "scale must be 3 finite positive numbers, as many as loc"),
        ({"scale": ZERO}, "scale must be 3 finite positive numbers"),
        ({"scale": np.array([1, np.nan, 1])}, "scale must be 3 finite positive numbers"),
        ({"skew": 0.3}, "skew must be 3 finite numbers, as many as loc"),
        ({"tail": -ONE}, "tail must be 3 finite positive numbers"),
        (
            {"root": np.eye(2)},
            r"root must be an invertible matrix of shape \(3, 3\), or a tuple of positive scales",
        ),
        ({"root": (ONE, np.ones((3, 2)))}, "root must be an invertible matrix"),
        ({"root": (ONE, ONE, ONE)}, r"root must be .*, got shapes \[\(3,\), \(3,\), \(3,\)\]"),
        ({"root": (ONE, 2 * np.eye(3)[:, :1], ONE[:1])}, r"far from I.*numpy\.linalg\.qr"),
        ({"root": (ONE, np.ones((3, 2)) / 3**0.5, ONE[:2])}, "far from I"),
        ({"root": (ONE, np.ones((3, 2)), np.ones(1))}, "root must be an invertible matrix"),
        ({"root": "R"}, "root must be an invertible matrix"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    given = {"loc": ZERO, "scale": ONE, "skew": ZERO, "tail": ONE, "root": np.eye(3)} | change
    with pytest.raises(ValueError, match=message):
        WarpedGaussian(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loc", np.nan * ONE),
        ("scale", np.inf * ONE),
        ("skew", np.inf * ONE),
        ("root", np.nan * np.eye(3)),
        ("root", np.zeros((3, 3))),
        ("root", (-ONE, np.eye(3)[:, :1], ONE[:1])),
        ("root", (ONE, np.eye(3)[:, :1], ZERO[:1])),
    ],
)
def test_arguments_without_a_density_are_refused(name, value):
    given = {"loc": ZERO, "scale": ONE, "skew": ZERO, "tail": ONE, "root": np.eye(3)}
    with pytest.raises(ValueError, match=f"^{name} must be"):
        WarpedGaussian(**given | {name: value})


def test_a_root_of_nested_lists_is_a_matrix():
    for rows in ([[1, 0], [0.6, 0.8]], ((1, 0), (0.6, 0.8))):
        family = WarpedGaussian(ZERO[:2], ONE[:2], ZERO[:2], ONE[:2], rows)
        np.testing.assert_allclose(family.root[0], [[1, 0], [0.6, 0.8]])


def test_bad_calls_are_refused():
    family = WarpedGaussian.of(warped())
    with pytest.raises(ValueError, match=r"x must be an array of shape \(n, 6\)"):
        family.log_prob(KEY, jnp.zeros((3, 5)), 1)
    with pytest.raises(ValueError, match="n must be a whole number"):
        family.sample(KEY, 0)
