"""Compares KSIVI with exact answers: a float64 double loop, closed forms, Stein's identity."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ksivi
import truth
from ksivi.families import (
    Constant,
    DiagonalGaussian,
    GaussianMixing,
    SemiImplicit,
    Triangular,
    trainable,
)
from ksivi.kernels import Fixed, Gaussian, Median
from ksivi.kernels import _pairwise as pairwise
from test_kernels import KERNELS, OF_A_DISTANCE, SMOOTH, TOLERANCE, every_kernel, with_slow

KEY = jax.random.key(7)


ESTIMATORS = ("vanilla", "u-statistic")


WITH_DERIVATIVES = ("stein", "combined")


EVERY_ESTIMATOR = (*ESTIMATORS, *WITH_DERIVATIVES, "mixture")


def skewed(x):
    """A log density whose curvature is not constant."""
    return -0.5 * jnp.sum(x**2) - 0.1 * jnp.sum(x**4) + jnp.sin(x[0])


def standard_normal(x):
    return -0.5 * jnp.sum(x**2)


def parts(objective, draws, family, target):
    """Samples and f in float64 NumPy, from the definitions."""
    scored = scores(objective, draws, family, target)
    return [(x, score + xi / sigma) for x, score, xi, sigma in scored]


def scores(objective, draws, family, target):
    """Samples, scores of the target, ξ and σ in float64 NumPy, from the definitions."""
    batches = []
    for z, xi in zip(draws.z, draws.xi, strict=True):
        z = np.repeat(np.asarray(z), objective.noise_per_z, axis=0)
        mean = np.asarray(jax.vmap(family.conditional.mean)(jnp.asarray(z)), np.float64)
        sigma = np.exp(
            0.5 * np.asarray(jax.vmap(family.conditional.log_var)(jnp.asarray(z)), np.float64)
        )
        x = mean + sigma * np.asarray(xi, np.float64)
        score = np.asarray(jax.vmap(target.score)(jnp.asarray(x, z.dtype)), np.float64)
        batches.append((x, score, np.asarray(xi, np.float64), sigma))
    return batches


def is_quick(name, estimator, bandwidth, dtype):
    """In float64 every kernel, vanilla with a fixed bandwidth and the U-statistic with the median.

    In float32 the other two pairs, for one kernel of each distance. The rest is for the slow tests.
    """
    mixed = (estimator == "vanilla") == (bandwidth == "fixed")
    return dtype == "float64" if mixed else dtype == "float32" and name in OF_A_DISTANCE


@pytest.mark.parametrize(
    ("name", "estimator", "bandwidth", "dtype"),
    with_slow(
        itertools.product(KERNELS, ESTIMATORS, ["fixed", "median"], ["float32", "float64"]),
        is_quick,
    ),
    indirect=["dtype"],
)
def test_estimators_equal_the_double_loop(name, estimator, bandwidth, dtype):
    kernel = KERNELS[name](Fixed(2.5)) if bandwidth == "fixed" else KERNELS[name]()
    objective = ksivi.KSIVI(kernel, estimator, num_samples=12)
    target = ksivi.Target(skewed, dim=3)
    family = SemiImplicit.mlp(KEY, dim=3, mixing_dim=2, hidden=(8,), log_var=-0.5)
    draws = objective.draw(KEY, target, family)
    loss = jax.jit(lambda: objective.loss(family, None, draws, target, 0)[0])()
    batches = parts(objective, draws, family, target)
    (x1, f1), (x2, f2) = batches[0], batches[-1]
    spreads = truth.spreads(name, x1, x2)
    counted = np.ones_like(spreads, bool) if estimator == "vanilla" else ~np.eye(12, dtype=bool)
    h = 2.5 if bandwidth == "fixed" else truth.median_bandwidth(spreads[counted], 12)
    expected = (
        truth.vanilla(name, x1, f1, x2, f2, h)
        if estimator == "vanilla"
        else truth.u_statistic(name, x1, f1, h)
    )
    assert loss.dtype == dtype
    np.testing.assert_allclose(
        loss, expected, rtol=TOLERANCE[dtype.name], atol=TOLERANCE[dtype.name] ** 1.5
    )


@pytest.mark.parametrize(
    ("name", "estimator", "bandwidth", "dtype"),
    with_slow(
        itertools.product(SMOOTH, WITH_DERIVATIVES, ["fixed", "median"], ["float32", "float64"]),
        lambda name, estimator, bandwidth, dtype: (
            dtype == ("float64" if bandwidth == "median" else "float32")
            and (name == "gaussian" or estimator == "combined")
        ),
    ),
    indirect=["dtype"],
)
def test_estimators_with_derivatives_equal_the_double_loop(name, estimator, bandwidth, dtype):
    """With σ(z), and two draws of ξ for each z."""
    kernel = KERNELS[name](Fixed(2.5)) if bandwidth == "fixed" else KERNELS[name]()
    objective = ksivi.KSIVI(kernel, estimator, num_samples=12, noise_per_z=2)
    target = ksivi.Target(skewed, dim=3)
    family = SemiImplicit.mlp(KEY, 3, 2, (8,), log_var=-0.5, scale="network")
    draws = objective.draw(KEY, target, family)
    loss, records = jax.jit(lambda: objective.loss(family, None, draws, target, 0))()
    (x1, s1, xi1, sigma1), (x2, s2, xi2, sigma2) = scores(objective, draws, family, target)
    spreads = truth.spreads(name, x1, x2)
    h = 2.5 if bandwidth == "fixed" else truth.median_bandwidth(spreads, 12)
    length = {"gaussian": h / 2, "imq": h, "matern52": 3 * h**2 / 5}[name]
    combined = estimator == "combined"
    sigma = np.concatenate([sigma1, sigma2])
    mean = np.concatenate([x1, x2]) - sigma * np.concatenate([xi1, xi2])
    variance = (sigma**2).mean(axis=0) + mean.var(axis=0)
    w1, w2 = (
        combined
        * np.minimum(
            1, (np.mean(1 / variance) + 1 / length) / (np.mean(s**-2, axis=1) + 1 / length)
        )
        for s in (sigma1, sigma2)
    )
    g1, g2 = s1 + w1[:, None] * xi1 / sigma1, s2 + w2[:, None] * xi2 / sigma2
    tolerance = TOLERANCE[dtype.name]
    assert loss.dtype == dtype
    np.testing.assert_allclose(
        loss, truth.stein(name, x1, g1, 1 - w1, x2, g2, 1 - w2, h), rtol=tolerance, atol=tolerance
    )
    precision = np.mean(np.sum(sigma**-2, axis=1))
    np.testing.assert_allclose(records["trace_precision"], precision, rtol=tolerance)


@pytest.mark.parametrize("name", SMOOTH)
def test_pairs_of_estimators_with_derivatives_in_tiles(name, monkeypatch, x64):
    """Values, and gradients through the median, with tiles of three rows; two points coincide."""
    target, family = ksivi.Target(skewed, dim=3), SemiImplicit.mlp(KEY, dim=3, mixing_dim=2)
    objective = ksivi.KSIVI(KERNELS[name](), "combined", num_samples=12)
    draws = objective.draw(KEY, target, family)
    z, xi = (a.at[1, 0].set(a[0, 0]) for a in (draws.z, draws.xi))
    draws = draws._replace(z=z, xi=xi)
    params, frozen = eqx.partition(family, trainable(family))
    value = lambda p: objective.loss(eqx.combine(p, frozen), None, draws, target, 0)[0]  # noqa: E731
    whole = jax.jit(jax.value_and_grad(value))(params)
    monkeypatch.setattr(pairwise, "TILE", 12 * 3)
    jax.clear_caches()
    tiled = jax.jit(jax.value_and_grad(value))(params)
    for a, b in zip(jax.tree.leaves(tiled), jax.tree.leaves(whole), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_pairs_that_share_z_are_left_out(x64):
    objective = ksivi.KSIVI(Gaussian(Fixed(2.0)), "u-statistic", num_samples=12, noise_per_z=3)
    target = ksivi.Target(skewed, dim=3)
    family = SemiImplicit.mlp(KEY, dim=3, mixing_dim=2, hidden=(8,))
    draws = objective.draw(KEY, target, family)
    assert draws.z.shape == (1, 4, 2)
    assert draws.xi.shape == (1, 12, 3)
    ((x, f),) = parts(objective, draws, family, target)
    loss = jax.jit(lambda: objective.loss(family, None, draws, target, 0)[0])()
    np.testing.assert_allclose(
        loss, truth.u_statistic("gaussian", x, f, 2.0, noise_per_z=3), rtol=1e-10
    )


def test_options_of_the_released_code(x64):
    """Annealing, the log-density term with its horizon, and the inverse-covariance pair term."""
    target = ksivi.Target(skewed, dim=2)
    family = SemiImplicit.mlp(KEY, dim=2, mixing_dim=2, hidden=(8,))
    plain = ksivi.KSIVI(Gaussian(Fixed(2.0)), num_samples=10)
    draws = plain.draw(KEY, target, family)
    objective = ksivi.KSIVI(
        Gaussian(Fixed(2.0)),
        num_samples=10,
        annealing=ksivi.Annealing(start=0.1, horizon=100),
        log_density_weight=0.05,
        log_density_horizon=40,
        inverse_covariance=True,
    )
    loss_at = jax.jit(lambda step: objective.loss(family, None, draws, target, step)[0])
    for step, beta, weight in ((20, 0.3, 0.05), (50, 0.6, 0.0), (500, 1.0, 0.0)):
        (x1, f1), (x2, f2) = parts(plain, draws, family, target.tempered(beta))
        inverse = np.linalg.inv(np.cov(x1, rowvar=False) + 1e-8 * np.eye(2))
        values = np.asarray(jax.vmap(target.log_density)(jnp.asarray(np.concatenate([x1, x2]))))
        expected = (
            truth.vanilla("gaussian", x1, f1, x2, f2 @ inverse, 2.0) - weight * beta * values.mean()
        )
        loss = loss_at(jnp.asarray(step))
        np.testing.assert_allclose(loss, expected, rtol=1e-9)


def ksd2_between_gaussians(m, log_var, h):
    r"""KSD² of N(m, diag s²) from N(0, I) with k = exp(−r²/h).

    f(x) = −m + a (x − m) with a = 1/s² − 1. With c = (1 + 4 s²/h)^(−1/2) the factor of a coordinate
    is E[k] = c, and E[k f f′] = m² c + a² s² (c − c³) / 2.
    """
    s2 = jnp.exp(log_var)
    c = (1 + 4 * s2 / h) ** -0.5
    own = m**2 * c + (1 / s2 - 1) ** 2 * s2 * (c - c**3) / 2
    return jnp.sum(own / c) * jnp.prod(c)


@pytest.mark.parametrize("estimator", EVERY_ESTIMATOR)
def test_loss_and_gradient_are_unbiased(estimator, x64):
    m, log_var, h = jnp.array([0.5, -0.3, 0.1]), jnp.array([0.4, -0.6, 0.1]), 3.0
    target = ksivi.Target(standard_normal, dim=3)
    objective = ksivi.KSIVI(Gaussian(Fixed(h)), estimator, num_samples=8)

    def estimate(key):
        def loss(parameters):
            family = SemiImplicit.location_scale(3, loc=parameters[0], log_var=parameters[1])
            return objective.loss(family, None, objective.draw(key, target, family), target, 0)[0]

        value, gradient = jax.value_and_grad(loss)((m, log_var))
        return jnp.concatenate([value[None], *gradient])

    estimates = jax.jit(jax.vmap(estimate))(jax.random.split(KEY, 20_000))
    value, gradient = jax.value_and_grad(ksd2_between_gaussians, argnums=(0, 1))(m, log_var, h)
    assert_mean(estimates, jnp.concatenate([value[None], *gradient]))


def test_a_weight_that_depends_on_z_is_unbiased(x64):
    """Loss and gradient of the combination, less those of the conditional form, with σ(z)."""
    target = ksivi.Target(skewed, dim=2)
    family = SemiImplicit.mlp(KEY, 2, 2, (4,), scale="network")
    of_scale = lambda family: family.conditional.log_var.weights[-1]  # noqa: E731
    family = eqx.tree_at(of_scale, family, 10 * of_scale(family))
    params, frozen = eqx.partition(family, trainable(family))

    def gradient(key, estimator):
        objective = ksivi.KSIVI(Gaussian(Fixed(1.0)), estimator, num_samples=8)
        draws = objective.draw(key, target, family)
        loss = lambda p: objective.loss(eqx.combine(p, frozen), None, draws, target, 0)[0]  # noqa: E731
        return ravel_pytree(jax.value_and_grad(loss)(params))[0]

    difference = jax.jit(jax.vmap(lambda k: gradient(k, "combined") - gradient(k, "vanilla")))
    found = np.asarray(difference(jax.random.split(KEY, 20_000)))
    moves = found.std(0) > 1e-12
    assert_mean(found[:, moves], np.zeros(moves.sum()))


def dilation_variances(estimator, variances):
    """Of dL(c)/dc, when x = c (z + √v ξ) is exactly N(0, I) in two dimensions for c = 1."""
    target = ksivi.Target(standard_normal, dim=2)
    objective = ksivi.KSIVI(estimator=estimator, num_samples=32)

    def loss(c, v, key):
        mean, log_var = Scaled(c * jnp.sqrt(1 - v)), Constant(jnp.log(c**2 * v) * jnp.ones(2))
        family = SemiImplicit(GaussianMixing(2), DiagonalGaussian(mean, log_var))
        return objective.loss(family, None, objective.draw(key, target, family), target, 0)[0]

    gradient = jax.jit(jax.vmap(jax.grad(loss), (None, None, 0)))
    return np.array([gradient(1.0, v, jax.random.split(KEY, 1_000)).var() for v in variances])


def test_which_estimator_is_quiet(x64):
    """ "stein" does not depend on σ, "vanilla" grows as 1/σ⁴, "combined" is below both."""
    found = {
        name: dilation_variances(name, (0.5, 0.02, 0.002))
        for name in ("vanilla", "stein", "combined")
    }
    np.testing.assert_allclose(found["stein"], found["stein"][0], rtol=0.3)
    assert found["vanilla"][0] < found["stein"][0] / 2
    np.testing.assert_allclose(found["vanilla"][2] / found["vanilla"][1], 100, rtol=0.4)
    assert np.all(found["combined"] < np.minimum(found["vanilla"], found["stein"]))


@pytest.mark.parametrize("layer", [False, True])
def test_precisions_and_variances_are_those_of_the_conditional(layer, x64):
    family = SemiImplicit.mlp(KEY, 3, 2, (8,), scale="network")
    if layer:
        lower = 0.3 * jax.random.normal(KEY, (3, 3))
        family = SemiImplicit(family.mixing, family.conditional, Triangular(jnp.ones(3), lower))
    z = jax.random.normal(KEY, (4, 2))
    matrix = np.asarray(family.layer.matrix) if layer else np.eye(3)
    means, log_vars = (np.asarray(a) for a in jax.vmap(family.conditional.parameters)(z))
    covariances = [matrix @ np.diag(np.exp(log_var)) @ matrix.T for log_var in log_vars]
    traces = [np.trace(np.linalg.inv(covariance)) for covariance in covariances]
    np.testing.assert_allclose(family.trace_precision(z), traces, rtol=1e-9)
    marginal = np.mean(covariances, axis=0) + np.cov((means @ matrix.T).T, ddof=0)
    np.testing.assert_allclose(family.marginal_variances(z), np.diag(marginal), rtol=1e-9)


class Scaled(eqx.Module):
    factor: float

    def __call__(self, z):
        return self.factor * z


def exact_family(a=0.6, dim=3):
    """q(x|z) = N(√a z, (1 − a) I), z ~ N(0, I): exactly N(0, I)."""
    log_var = Constant(jnp.full(dim, np.log(1 - a)))
    return SemiImplicit(GaussianMixing(dim), DiagonalGaussian(Scaled(np.sqrt(a)), log_var))


@every_kernel
def test_stein_identity_of_the_conditional_score(name, x64):
    """E[k(y, x) (s_p(x) − s_{q(·|z)}(x))] = 0 for q = p."""
    family = exact_family()
    y, kernel = jnp.array([[0.3, -0.8, 1.1]]), KERNELS[name](Fixed(2.0))
    x, conditional_score = jax.jit(lambda: family.transport(family.noise(KEY, 100_000)))()
    assert_mean(kernel.gram(x, y) * (-x - conditional_score), jnp.zeros(3))


@pytest.mark.parametrize("estimator", EVERY_ESTIMATOR)
def test_minibatches_are_unbiased_and_a_shared_one_is_not(estimator, x64):
    """The posterior of a normal mean, fitted exactly: KSD² is 0.

    A minibatch shifts every score by one random vector v, so a shared minibatch adds E[k] E‖v‖².
    """
    data = jax.random.normal(jax.random.key(3), (50, 2)) + 1.0
    log_likelihood = lambda x, batch: -0.5 * jnp.sum((batch - x[None]) ** 2)  # noqa: E731
    target = ksivi.Target.from_data(standard_normal, log_likelihood, data, dim=2, batch_size=5)
    family = SemiImplicit.location_scale(2, loc=data.sum(0) / 51, log_var=-np.log(51.0))

    def estimates(**options):
        objective = ksivi.KSIVI(Gaussian(Fixed(0.1)), estimator, num_samples=10, **options)

        def estimate(key):
            return objective.loss(family, None, objective.draw(key, target, family), target, 0)[0]

        return jax.jit(jax.vmap(estimate))(jax.random.split(KEY, 20_000))[:, None]

    assert_mean(estimates(), jnp.zeros(1))
    mean_kernel = (1 + 4 / 51 / 0.1) ** -1
    added = mean_kernel * 50**2 / 5 * data.var(0).sum()
    assert_mean(estimates(shared_rows=True), added[None])


@pytest.mark.parametrize(("estimator", "shape"), [("vanilla", (2, 8)), ("u-statistic", (2, 4))])
def test_minibatches_divide_the_one_batch_of_a_u_statistic(estimator, shape):
    target = ksivi.Target.from_data(
        standard_normal,
        lambda x, b: -jnp.sum((b - x[None]) ** 2),
        jnp.ones((50, 2)),
        2,
        batch_size=5,
    )
    family, objective = SemiImplicit.location_scale(2), ksivi.KSIVI(None, estimator, 8)
    draws = objective.draw(KEY, target, family)
    assert draws.xi.shape == (*shape, 2)
    assert objective.score_evals == shape[0] * shape[1]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_covariance_needs_more_samples_than_dimensions_and_nothing_else_does(estimator):
    target, family = ksivi.Target(standard_normal, dim=5), SemiImplicit.location_scale(5)

    def init(n, inverse):
        objective = ksivi.KSIVI(None, estimator, n, inverse_covariance=inverse)
        return objective.init(KEY, target, family)

    init(2, False)
    init(6, True)
    with pytest.raises(ValueError, match="more than dim = 5 samples per batch, got 5"):
        init(5, True)


@pytest.mark.parametrize(("estimator", "shapes"), [("vanilla", (2, 7)), ("u-statistic", (1, 7))])
def test_shared_rows_are_one_minibatch_and_an_undivided_batch(estimator, shapes):
    target = ksivi.Target.from_data(
        standard_normal, lambda x, b: -jnp.sum((b - x[None]) ** 2), jnp.ones((50, 2)), 2
    )
    family, objective = (
        SemiImplicit.location_scale(2),
        ksivi.KSIVI(None, estimator, 7, shared_rows=True),
    )
    assert objective.draw(KEY, target, family).rows is None
    target = ksivi.Target.from_data(
        standard_normal,
        lambda x, b: -jnp.sum((b - x[None]) ** 2),
        jnp.ones((50, 2)),
        2,
        batch_size=5,
    )
    objective.init(KEY, target, family)
    draws = objective.draw(KEY, target, family)
    assert draws.xi.shape == (*shapes, 2)
    assert draws.rows.shape == (shapes[0], 5)
    assert np.all(draws.rows == draws.rows[:1])
    assert objective.score_evals == shapes[0] * 7


def test_conditional_score_is_the_gradient_of_the_conditional_density(x64):
    family = SemiImplicit.mlp(
        KEY, dim=4, mixing_dim=3, hidden=(8, 8), log_var=-1.0, scale="network"
    )
    z, xi = family.noise(KEY, 6, noise_per_z=2)
    x, score = family.transport((z, xi))
    expected = jax.vmap(jax.grad(family.conditional.log_prob))(x, jnp.repeat(z, 2, axis=0))
    np.testing.assert_allclose(score, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        *with_slow(
            itertools.product([name for name in KERNELS if name != "riesz"], ESTIMATORS),
            lambda name, estimator: name == "gaussian" or estimator == "vanilla",
        ),
        ("gaussian", "stein"),
        ("imq", "combined"),
    ],
)
def test_an_offset_of_a_thousand_sd_changes_nothing(name, estimator):
    objective = ksivi.KSIVI(KERNELS[name](), estimator, num_samples=50)

    def loss(offset):
        target = ksivi.Target(
            lambda x: standard_normal(x - offset), dim=3, test_point=jnp.full(3, offset)
        )
        family = SemiImplicit.location_scale(
            3, loc=offset + jnp.array([0.5, 0.0, -0.5]), log_var=0.3
        )
        return objective.loss(family, None, objective.draw(KEY, target, family), target, 0)[0]

    np.testing.assert_allclose(loss(1000.0), loss(0.0), rtol=1e-3)


def test_floor_on_sigma_has_no_gradient_below_it():
    mean, log_var = Constant(jnp.zeros(2)), Constant(jnp.array([-5.0, 1.0]))
    family = SemiImplicit(GaussianMixing(0), DiagonalGaussian(mean, log_var, min_log_var=-2.0))
    objective, target = ksivi.KSIVI(num_samples=20), ksivi.Target(standard_normal, dim=2)
    params, frozen = eqx.partition(family, trainable(family))
    draws = objective.draw(KEY, target, family)
    loss = lambda p: objective.loss(eqx.combine(p, frozen), None, draws, target, 0)[0]  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(params)
    assert gradient.conditional.log_var.value[0] == 0
    assert gradient.conditional.log_var.value[1] != 0
    np.testing.assert_allclose(family.sample(KEY, 5_000).std(0)[0], np.exp(-1.0), rtol=0.05)


def test_stein_ratio_is_one_at_the_truth_and_c_squared_when_c_times_too_wide():
    target, objective = ksivi.Target(standard_normal, dim=3), ksivi.KSIVI(num_samples=5_000)
    for width in (1.0, 3.0):
        family = SemiImplicit.location_scale(3, log_var=2 * np.log(width))
        draws = objective.draw(KEY, target, family)
        ratio = jax.jit(lambda: objective.loss(family, None, draws, target, 0)[1]["stein_ratio"])()  # noqa: B023
        np.testing.assert_allclose(ratio, width**2, rtol=0.05)


def test_detached_and_flowing_medians_have_the_same_value(x64):
    target, family = ksivi.Target(skewed, dim=2), SemiImplicit.mlp(KEY, dim=2, mixing_dim=2)
    flowing, detached = (
        ksivi.KSIVI(Gaussian(Median(stop_gradient=s)), num_samples=20) for s in (False, True)
    )
    draws = flowing.draw(KEY, target, family)
    loss = lambda objective: jax.jit(lambda: objective.loss(family, None, draws, target, 0)[0])()  # noqa: E731
    np.testing.assert_allclose(loss(flowing), loss(detached), rtol=1e-12)


def assert_mean(samples, expected, standard_errors=4):
    error = samples.std(0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(0) - expected) <= standard_errors * error), (
        samples.mean(0),
        expected,
        error,
    )
