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


@pytest.mark.parametrize(
    ("estimator", "num_mixing"), [("mixture", None), ("mixture", 9), ("shared-mixture", None)]
)
@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"], indirect=True)
def test_the_mixture_equals_the_double_loop(estimator, num_mixing, layer, dtype):
    """With σ(z), and with two draws of ξ for each z in each batch."""
    options = {"num_samples": 12, "noise_per_z": 2, "num_mixing": num_mixing}
    objective = ksivi.KSIVI(KERNELS["imq"](Fixed(2.5)), estimator, **options)
    target = ksivi.Target(skewed, dim=3)
    family = SemiImplicit.mlp(KEY, 3, 2, (8,), log_var=-0.5, scale="network")
    if layer:
        lower = 0.3 * jax.random.normal(KEY, (3, 3))
        family = SemiImplicit(family.mixing, family.conditional, Triangular(jnp.ones(3), lower))
    draws = objective.draw(KEY, target, family)
    assert draws.z.shape == (2 if estimator == "mixture" else 1, 6, 2)
    assert draws.xi.shape == (2, 12, 3)
    loss = jax.jit(lambda: objective.loss(family, None, draws, target, 0)[0])()
    matrix = np.asarray(family.layer.matrix, float) if layer else np.eye(3)
    loc = np.asarray(family.layer.loc, float) if layer else np.zeros(3)
    batches = []
    for z, others, xi in zip(
        [draws.z[0], draws.z[-1]], draws.others, np.asarray(draws.xi, float), strict=True
    ):
        parameters = jax.vmap(family.conditional.parameters)(jnp.concatenate([z, others]))
        means = np.asarray(parameters[0], float)
        sigmas = np.exp(0.5 * np.asarray(parameters[1], float))
        assert len(means) == (num_mixing or 6)
        u = np.repeat(means[:6], 2, axis=0) + np.repeat(sigmas[:6], 2, axis=0) * xi
        score = np.stack([mixture_score(one, means, sigmas) for one in u]) @ np.linalg.inv(matrix)
        x = u @ matrix.T + loc
        of_target = np.asarray(jax.vmap(target.score)(jnp.asarray(x, draws.xi.dtype)), float)
        batches.append((x, of_target - score))
    (x1, f1), (x2, f2) = batches
    tolerance = TOLERANCE[dtype.name]
    expected = truth.vanilla("imq", x1, f1, x2, f2, 2.5)
    np.testing.assert_allclose(loss, expected, rtol=tolerance, atol=tolerance)


TILTS = {"across": {"across": 0.9}, "steep": {"steep": 0.5}, "growth": {"growth": 1.0}}
TILTS["all"] = {name: value for one in TILTS.values() for name, value in one.items()}


def tilt_matrix(x, score, across=0.0, steep=0.0, growth=0.0):
    """m(x) of one point, from the definition."""
    length = np.linalg.norm(score)
    r = 1 + length**2 / len(x)
    turned = np.eye(len(x)) + (r ** (-across / 2) - 1) * np.outer(score, score) / length**2
    return (1 + x @ x / len(x)) ** (growth / 2) * r ** (-steep / 2) * turned


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


def test_the_score_of_a_mixture_of_narrow_parts_is_that_of_the_own_part():
    """In float32, where squares of distances in σ lose all digits."""
    family = SemiImplicit.mlp(KEY, 3, 2, (8,), log_var=2 * np.log(1e-4))
    noise = family.noise(KEY, 50, 2)
    x, own = family.transport(noise)
    same, found = family.transport(noise, jnp.zeros((0, 2)))
    np.testing.assert_array_equal(same, x)
    np.testing.assert_allclose(found, own, atol=0.02 * np.abs(own).max())


@pytest.mark.parametrize(
    ("estimator", "num_mixing"), [("mixture", None), ("mixture", 20), ("shared-mixture", None)]
)
def test_the_mixture_is_ksd2_of_the_mixture_over_z(estimator, num_mixing, x64):
    """With μ(z) = a z, the loss and its gradient are on average KSD²(q), and a part of 1/m if z is shared."""
    a, log_var, h, m = jnp.array(0.8), jnp.log(jnp.array([0.3, 0.5])), 3.0, 8
    target = ksivi.Target(standard_normal, dim=2)
    objective = ksivi.KSIVI(Gaussian(Fixed(h)), estimator, m, num_mixing=num_mixing)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    z = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    weights = np.outer(weights, weights).ravel() / (2 * np.pi)

    def expected(a, log_var):
        of_one = jax.vmap(lambda mean: ksd2_between_gaussians(mean, log_var, h))(a * z)
        whole = ksd2_between_gaussians(jnp.zeros(2), jnp.log(jnp.exp(log_var) + a**2), h)
        excess = (weights @ of_one - whole) / m
        return whole if estimator == "mixture" else whole + excess

    def estimate(key):
        def loss(a, log_var):
            conditional = DiagonalGaussian(Scaled(a), Constant(log_var))
            family = SemiImplicit(GaussianMixing(2), conditional)
            return objective.loss(family, None, objective.draw(key, target, family), target, 0)[0]

        value, gradient = jax.value_and_grad(loss, argnums=(0, 1))(a, log_var)
        return jnp.concatenate([value[None], gradient[0][None], gradient[1]])

    estimates = jax.jit(jax.vmap(estimate))(jax.random.split(KEY, 20_000))
    value, gradient = jax.value_and_grad(expected, argnums=(0, 1))(a, log_var)
    exact = jnp.concatenate([value[None], gradient[0][None], gradient[1]])
    assert_mean(estimates, exact)
    unbiased = ksd2_between_gaussians(jnp.zeros(2), jnp.log(jnp.exp(log_var) + a**2), h)
    assert value == unbiased if estimator == "mixture" else value > 1.2 * unbiased
