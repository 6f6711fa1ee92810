"""KSIVI with the score of the mixture over the z of a step, and with a tilted kernel, against exact answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
import truth
from ksivi.families import (
    Constant,
    DiagonalGaussian,
    GaussianMixing,
    SemiImplicit,
    Triangular,
)
from ksivi.families._log_normals import mixture_scores
from ksivi.kernels import Fixed, Gaussian
from test_kernels import KERNELS, TOLERANCE
from test_ksivi import (
    ESTIMATORS,
    KEY,
    Scaled,
    assert_mean,
    ksd2_between_gaussians,
    scores,
    skewed,
    standard_normal,
)


def mixture_score(x, means, sigmas):
    """∇ log 1/m Σₖ N(x; μₖ, σₖ²) of one point, from the definition."""
    parts = np.exp(-0.5 * np.sum(((x - means) / sigmas) ** 2, axis=1)) / np.prod(sigmas, axis=1)
    return parts @ ((means - x) / sigmas**2) / parts.sum()


TILTS = {"across": {"across": 0.9}, "growth": {"growth": 1.0}}
TILTS["all"] = {name: value for one in TILTS.values() for name, value in one.items()}


@pytest.mark.parametrize(("num_mixing", "tilt"), [(None, None), (9, None), (9, "all")])
@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"], indirect=True)
def test_the_mixture_equals_the_double_loop(num_mixing, tilt, layer, dtype):
    """With σ(z), and with two draws of ξ for each z in each batch."""
    options = {"num_samples": 12, "noise_per_z": 2, "num_mixing": num_mixing}
    tilted = None if tilt is None else ksivi.objectives.Tilt(**TILTS[tilt])
    objective = ksivi.KSIVI(KERNELS["imq"](Fixed(2.5)), "mixture", tilt=tilted, **options)
    target = ksivi.Target(skewed, dim=3)
    family = SemiImplicit.mlp(KEY, 3, 2, (8,), log_var=-0.5, scale="network")
    if layer:
        lower = 0.3 * jax.random.normal(KEY, (3, 3))
        family = SemiImplicit(family.mixing, family.conditional, Triangular(jnp.ones(3), lower))
    draws = objective.draw(KEY, target, family)
    assert draws.z.shape == (2, 6, 2)
    assert draws.xi.shape == (2, 12, 3)
    loss = jax.jit(lambda: objective.loss(family, None, draws, target, 0)[0])()
    matrix = np.asarray(family.layer.matrix, float) if layer else np.eye(3)
    loc = np.asarray(family.layer.loc, float) if layer else np.zeros(3)
    batches = []
    for z, others, xi in zip(draws.z, draws.others, np.asarray(draws.xi, float), strict=True):
        parameters = jax.vmap(family.conditional.parameters)(jnp.concatenate([z, others]))
        means = np.asarray(parameters[0], float)
        sigmas = np.exp(0.5 * np.asarray(parameters[1], float))
        assert len(means) == (num_mixing or 6)
        u = np.repeat(means[:6], 2, axis=0) + np.repeat(sigmas[:6], 2, axis=0) * xi
        score = np.stack([mixture_score(one, means, sigmas) for one in u]) @ np.linalg.inv(matrix)
        x = u @ matrix.T + loc
        of_target = np.asarray(jax.vmap(target.score)(jnp.asarray(x, draws.xi.dtype)), float)
        f = of_target - score
        if tilt is not None:
            points = zip(x, of_target, f, strict=True)
            f = np.stack([tilt_matrix(a, s, **TILTS[tilt]) @ b for a, s, b in points])
        batches.append((x, f))
    (x1, f1), (x2, f2) = batches
    tolerance = TOLERANCE[dtype.name]
    expected = truth.vanilla("imq", x1, f1, x2, f2, 2.5)
    np.testing.assert_allclose(loss, expected, rtol=tolerance, atol=tolerance)


def tilt_matrix(x, score, across=0.0, growth=0.0):
    """m(x) of one point, from the definition."""
    length = np.linalg.norm(score)
    r = 1 + length**2 / len(x)
    turned = np.eye(len(x)) + (r ** (-across / 2) - 1) * np.outer(score, score) / length**2
    return (1 + x @ x / len(x)) ** (growth / 2) * turned


@pytest.mark.parametrize("options", TILTS.values(), ids=TILTS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_tilt_multiplies_the_kernel(estimator, options, x64):
    tilt = ksivi.objectives.Tilt(**options)
    objective = ksivi.KSIVI(KERNELS["imq"](Fixed(2.5)), estimator, num_samples=12, tilt=tilt)
    target = ksivi.Target(skewed, dim=3)
    family = SemiImplicit.mlp(KEY, dim=3, mixing_dim=2, hidden=(8,), log_var=-0.5)
    draws = objective.draw(KEY, target, family)
    loss = jax.jit(lambda: objective.loss(family, None, draws, target, 0)[0])()
    tilted = []
    for x, score, xi, sigma in scores(objective, draws, family, target):
        points = zip(x, score, score + xi / sigma, strict=True)
        tilted.append((x, np.stack([tilt_matrix(a, s, **options) @ f for a, s, f in points])))
    (x1, f1), (x2, f2) = tilted[0], tilted[-1]
    if estimator == "vanilla":
        expected = truth.vanilla("imq", x1, f1, x2, f2, 2.5)
    else:
        expected = truth.u_statistic("imq", x1, f1, 2.5)
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


def test_a_tilt_has_a_finite_gradient_where_the_score_is_0():
    tilt, x = ksivi.objectives.Tilt(**TILTS["all"]), jnp.zeros((2, 3))
    norm2 = lambda x, score: jnp.sum(tilt(x, score, jnp.ones((2, 3))) ** 2)  # noqa: E731
    value, gradients = jax.value_and_grad(norm2, argnums=(0, 1))(x, x)
    assert value == 6
    assert all(jnp.isfinite(gradient).all() for gradient in gradients)


def test_a_tilt_keeps_the_precision_of_the_family(x64):
    tilt, x = ksivi.objectives.Tilt(**TILTS["all"]), jnp.ones((2, 3), jnp.float32)
    assert tilt(x, x, x).dtype == jnp.float32


def test_a_tilt_keeps_what_is_across_a_large_score():
    """Nothing of f is lost where the score is large."""
    score, f = jnp.array([[1e9, 0.0]]), jnp.array([[1e9, 1.0]])
    tilted = ksivi.objectives.Tilt(across=0.9)(jnp.zeros((1, 2)), score, f)
    expected = [1e9 * (1e18 / 2) ** -0.45, 1.0]
    np.testing.assert_allclose(tilted[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "grows"),
    [({"across": 0.9, "growth": 1.0}, True), ({"across": 0.9}, False), ({}, True)],
)
def test_draws_that_run_away_cost_more_only_with_enough_growth(options, grows, x64):
    """The tilted KSD² of N(0, c² I) to N(0, I), for a < g + ½ and else, with an IMQ kernel."""
    tilt, kernel = ksivi.objectives.Tilt(**options), KERNELS["imq"](Fixed(4.0))

    def discrepancy(scale):
        x1, x2 = scale * jax.random.normal(KEY, (2, 4_000, 2))
        f1, f2 = (tilt(x, -x, -x + x / scale**2) for x in (x1, x2))
        return ksivi.kernels.pair_mean(kernel.gram, x1, f1, x2, f2)

    values = np.array([discrepancy(scale) for scale in (2.0, 10.0, 100.0, 1_000.0)])
    assert (np.diff(values) > 0).all() == grows


@pytest.mark.parametrize("dtype", ["float32"], indirect=True)
def test_the_score_of_a_mixture_of_narrow_parts(dtype):
    """In float32, with parts 3 to 30 σ apart that spread over 1,000 σ."""
    sigma = 1e-3
    mean = sigma * np.cumsum(np.linspace(3, 30, 60))[:, None] * np.array([1.0, -0.5])
    x = mean + sigma * np.asarray(jax.random.normal(KEY, mean.shape))
    exact = np.stack([mixture_score(point, mean, np.full_like(mean, sigma)) for point in x])
    log_var = np.full_like(mean, 2 * np.log(sigma))
    found = mixture_scores(*(jnp.asarray(part, jnp.float32) for part in (x, mean, log_var)))
    np.testing.assert_allclose(found, exact, atol=0.05 / sigma)


@pytest.mark.parametrize(
    ("noise_per_z", "num_mixing", "tilted"), [(1, None, False), (2, 20, False), (1, None, True)]
)
def test_the_mixture_is_unbiased(noise_per_z, num_mixing, tilted, x64):
    """With μ(z) = a z, the loss and its gradient are on average those with the exact score of q."""
    a, log_var, h, m = jnp.array(0.8), jnp.log(jnp.array([0.3, 0.5])), 3.0, 8
    target = ksivi.Target(standard_normal, dim=2)
    tilt = ksivi.objectives.Tilt(across=0.5, growth=0.5) if tilted else None
    options = {"noise_per_z": noise_per_z, "num_mixing": num_mixing, "tilt": tilt}
    objective = ksivi.KSIVI(Gaussian(Fixed(h)), "mixture", m, **options)

    def expected(a, log_var):
        return ksd2_between_gaussians(jnp.zeros(2), jnp.log(jnp.exp(log_var) + a**2), h)

    def with_exact_score(key):
        """A pair of draws of q, which is Gaussian, with its score."""

        def value(a, log_var):
            variance = jnp.exp(log_var)[None] + a**2
            x = jnp.sqrt(variance) * jax.random.normal(key, (2, 2))
            f = objective.tilt(x, -x, -x + x / variance)
            return jnp.exp(-jnp.sum((x[0] - x[1]) ** 2) / h) * (f[0] @ f[1])

        return value

    def estimate(key):
        def loss(a, log_var):
            conditional = DiagonalGaussian(Scaled(a), Constant(log_var))
            family = SemiImplicit(GaussianMixing(2), conditional)
            return objective.loss(family, None, objective.draw(key, target, family), target, 0)[0]

        value, gradient = jax.value_and_grad(loss, argnums=(0, 1))(a, log_var)
        return jnp.concatenate([value[None], gradient[0][None], gradient[1]])

    estimates = jax.jit(jax.vmap(estimate))(jax.random.split(KEY, 20_000))
    if not tilted:
        value, gradient = jax.value_and_grad(expected, argnums=(0, 1))(a, log_var)
        assert_mean(estimates, jnp.concatenate([value[None], gradient[0][None], gradient[1]]))
        return

    def exact(key):
        value, gradient = jax.value_and_grad(with_exact_score(key), argnums=(0, 1))(a, log_var)
        return jnp.concatenate([value[None], gradient[0][None], gradient[1]])

    others = jax.jit(jax.vmap(exact))(jax.random.split(jax.random.key(8), 400_000))
    error = jnp.hypot(*(jnp.std(part, axis=0) / len(part) ** 0.5 for part in (estimates, others)))
    assert (jnp.abs(jnp.mean(estimates, axis=0) - jnp.mean(others, axis=0)) < 4 * error).all()
