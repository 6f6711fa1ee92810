"""Gradient noise, smoothness, tails and chains against closed forms."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from known import COVARIANCE, MEAN, gaussian, posterior_of
from ksivi.diagnostics import (
    chains,
    gradient_variance,
    jacobian_lipschitz,
    jacobian_norms,
    movement,
)
from ksivi.families import MLP, SemiImplicit, trainable

KEY = jax.random.key(0)


def normal():
    return ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)


def identity(x):
    return x


def test_gradient_variance_of_a_closed_form():
    """SIVI without auxiliary z on N(0, I) from N(m, σ² I): g_m = mean x, g_{log σ²} = −½ + ½ mean σ ξ x."""
    m, var, n = jnp.array([0.5, -1.0]), 0.49, 8
    family = SemiImplicit.location_scale(2, loc=m, log_var=np.log(var))
    variance, error = gradient_variance(KEY, ksivi.SIVI(n, num_mixing=0), normal(), family, 2_000)
    # Var(σ ξ (m + σ ξ)) = σ² m² + 2 σ⁴
    exact = (2 * var + 0.25 * float(jnp.sum(var * m**2 + 2 * var**2))) / n
    assert abs(variance - exact) < 4 * error
    assert error < 0.05 * exact


def test_gradient_variance_equals_that_of_stored_gradients():
    family = SemiImplicit.location_scale(2, loc=0.5, log_var=0.3)
    objective, target = ksivi.KSIVI(estimator="u-statistic", num_samples=10), normal()
    params, frozen = eqx.partition(family, trainable(family))

    def gradient(key):
        def loss(p):
            return objective.loss(
                eqx.combine(p, frozen), None, objective.draw(key, target, family), target, 0
            )[0]

        return jnp.concatenate(
            [jnp.ravel(leaf) for leaf in jax.tree.leaves(jax.grad(loss)(params))]
        )

    stored = np.asarray(
        jax.jit(jax.vmap(gradient))(jax.random.split(jax.random.key(1), 4_000)), np.float64
    )
    squares = np.sum((stored - stored.mean(0)) ** 2, axis=1)
    variance, error = gradient_variance(KEY, objective, target, family, 2_000)
    assert abs(variance - squares.mean()) < 4 * np.hypot(
        error, squares.std() / np.sqrt(len(squares))
    )


def test_gradient_variance_serves_objectives_with_a_state_and_schedules():
    family, annealing = SemiImplicit.location_scale(2), ksivi.Annealing(start=0.1, horizon=100)
    assert gradient_variance(KEY, ksivi.SIVISM(10, (4,)), normal(), family, 5)[0] > 0
    early, late = (
        gradient_variance(
            KEY, ksivi.SIVI(10, 0, annealing=annealing), normal(), family, 50, step=step
        )[0]
        for step in (0, 1_000)
    )
    assert early < late


def test_jacobian_norms_of_a_linear_network():
    """μ = z W + b has ‖J‖² = d (‖z‖² + 1), and a J that does not depend on the parameters."""
    a, b = (MLP(jax.random.key(k), (3, 4)) for k in range(2))
    z = jax.random.normal(KEY, (7, 3))
    np.testing.assert_allclose(
        jacobian_norms(a, z), np.sqrt(4 * (np.sum(z**2, axis=1) + 1)), rtol=1e-5
    )
    np.testing.assert_array_equal(jacobian_lipschitz(a, b, z), 0)


def test_jacobian_norms_of_two_linear_layers():
    """‖J‖² = ‖W₂‖² (‖z‖² + 1) + d (‖h‖² + 1). If only W₂ moves, J moves √(‖z‖² + 1) times as far."""
    net = MLP(KEY, (3, 5, 2), identity)
    z = jax.random.normal(KEY, (7, 3))
    hidden = z @ net.weights[0] + net.biases[0][None]
    ahead = np.sum(z**2, axis=1) + 1
    exact = np.sum(net.weights[1] ** 2) * ahead + 2 * (np.sum(hidden**2, axis=1) + 1)
    np.testing.assert_allclose(jacobian_norms(net, z), np.sqrt(exact), rtol=1e-5)
    moved = eqx.tree_at(
        lambda n: n.weights[1], net, net.weights[1] + jax.random.normal(KEY, (5, 2))
    )
    np.testing.assert_allclose(jacobian_lipschitz(net, moved, z), np.sqrt(ahead), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gradient_variance(KEY, None, normal(), SemiImplicit.location_scale(2)),
            "objective must be one of",
        ),
        (lambda: gradient_variance(KEY, ksivi.SIVI(), None, None), "target and family must be"),
        (
            lambda: gradient_variance(
                KEY, ksivi.SIVI(), normal(), SemiImplicit.location_scale(2), 1
            ),
            "num_repeats must be a whole number of at least 2, got 1",
        ),
        (
            lambda: jacobian_norms(MLP(KEY, (3, 2)), jnp.ones(3)),
            r"z must be an array of shape \(n, d\)",
        ),
        (
            lambda: jacobian_lipschitz(MLP(KEY, (3, 2)), MLP(KEY, (3, 2)), jnp.ones((1, 3))),
            "must have different parameters",
        ),
        (
            lambda: jacobian_lipschitz(MLP(KEY, (3, 2)), MLP(KEY, (3, 4, 2)), jnp.ones((1, 3))),
            "must have parameters of the same shapes",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_errors_of_tails_are_those_of_repeated_samples():
    """Coordinates that are copies of each other count once."""

    def once(seed, copies):
        rng = np.random.default_rng(seed)
        first, second = rng.normal(size=(2_000, 1)), rng.normal(size=(1_000, 1))
        return ksivi.diagnostics.difference(np.tile(first, copies), np.tile(second, copies))

    for copies in (1, 4):
        found = [once(seed, copies) for seed in range(200)]
        spread = np.std([one.tails for one in found], axis=0)
        error = np.mean([one.tail_errors for one in found], axis=0)
        np.testing.assert_allclose(error, spread, rtol=0.25)


def test_a_tail_near_its_limit_is_undecided_until_there_are_more_draws():
    near = ksivi.diagnostics.Difference(np.zeros(1), np.zeros(1), (0.005, 0.01), (0.002, 0.002))
    assert near.is_undecided()
    assert near.is_small()  # within its standard error of 0.6%
    sure = dataclasses.replace(near, tail_errors=(2e-4, 2e-4))
    assert not sure.is_undecided()
    assert not sure.is_small()


def test_chains_sample_a_gaussian_that_they_start_beside():
    """Scales that differ by a factor of 20, and strong dependence, do not matter to them."""
    rng, precision = np.random.default_rng(0), np.linalg.inv(COVARIANCE)

    def evaluate(x):
        score = -(x - MEAN) @ precision
        return 0.5 * np.sum((x - MEAN) * score, axis=1), score

    before = rng.multivariate_normal(MEAN + np.array([1.0, 0.5, 0.0]), 0.5 * COVARIANCE, size=2_000)
    moved = chains(rng, evaluate, before, 60)
    np.testing.assert_array_equal(moved.before, before)
    assert 0.7 < moved.acceptance < 0.9
    assert np.abs(moved.memory).max() < 0.1
    sd = np.sqrt(np.diag(COVARIANCE))
    assert np.all(np.abs(moved.after.mean(axis=0) - MEAN) < 4 * sd / np.sqrt(2_000))
    np.testing.assert_allclose(moved.after.std(axis=0), sd, rtol=4 / np.sqrt(4_000))
    np.testing.assert_allclose(moved.difference.shift, [-0.5, -0.5, 0], atol=0.12)


def test_quick_chains_give_several_draws_each_and_slow_ones_their_ends():
    """Chains forget where they were within a Gaussian, but not in which of two modes they are."""
    rng = np.random.default_rng(1)

    def one_mode(x):
        return -0.5 * np.sum(x**2, axis=1), -x

    def two_modes(x):
        sign = np.sign(x[:, :1])
        away = x - np.concatenate([20 * sign, np.zeros((len(x), 1))], axis=1)
        return -0.5 * np.sum(away**2, axis=1), -away

    quick = chains(rng, one_mode, rng.standard_normal((500, 2)))
    assert quick.settled.shape == (2_500, 2)
    # The mean of the pooled states is as sure as that of 2,500 independent draws, or nearly.
    assert np.all(np.abs(quick.settled.mean(axis=0)) < 4 / np.sqrt(0.6 * 2_500))
    apart = rng.standard_normal((500, 2)) + np.outer(rng.choice([-20, 20], 500), [1, 0])
    slow = chains(rng, two_modes, apart)
    np.testing.assert_array_equal(slow.settled, slow.after)
    assert len(quick.with_more(quick).settled) == 5_000


def test_movement_repeats_itself_and_refuses_too_few_chains():
    first, again = (
        movement(KEY, gaussian(), posterior_of(), num_chains=20, num_transitions=3)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.after, again.after)
    assert np.any(first.after != first.before)
    with pytest.raises(ValueError, match="num_chains must be a whole number of at least 2, got 1"):
        movement(KEY, gaussian(), posterior_of(), num_chains=1)
    with pytest.raises(ValueError, match="num_transitions must be a whole number of at least 2"):
        movement(KEY, gaussian(), posterior_of(), num_transitions=1)
