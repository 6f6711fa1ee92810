"""Wake and Jeffreys: the cross-entropy of a linear-Gaussian family, and what they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.families import SampledMixing
from linear import COVARIANCE, KEY, OFFSET, linear_family, normal_target, stretched


@pytest.mark.slow
def test_wake_is_the_cross_entropy_and_its_gradient():
    """−E_p log q = ½ (log |2πC| + tr C⁻¹Σ + (b − m)ᵀ C⁻¹ (b − m)) for p = N(m, Σ).

    Its gradient in b is C⁻¹ (b − m).
    """
    mean, covariance, target = stretched(1.3, shift=0.3)
    away = np.linalg.solve(COVARIANCE, OFFSET - mean)
    exact = np.linalg.slogdet(2 * np.pi * COVARIANCE)[1] + np.trace(
        np.linalg.solve(COVARIANCE, covariance)
    )
    exact = 0.5 * (exact + (OFFSET - mean) @ away)
    objective, family = ksivi.Wake(4_000, 2_000), linear_family()

    @eqx.filter_jit
    def once(key):
        draws = objective.draw(key, target, family)
        loss = lambda q: objective.loss(q, None, draws, target, 0)[0]  # noqa: E731
        value, gradient = eqx.filter_value_and_grad(loss)(family)
        return value, jax.tree.leaves(gradient.conditional.mean)[1]

    values, gradients = jax.lax.map(once, jax.random.split(KEY, 50))
    for found, expected in ((values, exact), (gradients, away)):
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(50)
        assert np.all(
            np.abs(mean - expected) < 4 * error + 0.003
        )  # K is finite, and weights sum to 1


def test_jeffreys_refuses_what_makes_no_divergence():
    with pytest.raises(ValueError, match="share must be between 0 and 1, got 1"):
        ksivi.Jeffreys(ksivi.SIVI(), ksivi.Wake(), share=1.0)
    with pytest.raises(ValueError, match="share must be one positive number"):
        ksivi.Jeffreys(ksivi.SIVI(), ksivi.Wake(), share=-0.5)
    with pytest.raises(ValueError, match="reverse must have no annealing"):
        ksivi.Jeffreys(ksivi.SIVI(annealing=ksivi.Annealing(horizon=100)), ksivi.Wake())


@pytest.mark.slow
def test_wake_goes_by_all_rows():
    """A minibatch would give the weights of another posterior.

    At the exact posterior the gradient in log σ² is 0.
    """
    y = np.random.default_rng(0).normal(0.3, 1, 1_000)
    log_likelihood = lambda x, y: -0.5 * jnp.sum((y - x[0]) ** 2)  # noqa: E731
    target = ksivi.Target.from_data(
        lambda x: 0.0, log_likelihood, jnp.asarray(y), dim=1, batch_size=50
    )
    family = ksivi.SemiImplicit.location_scale(
        1, loc=float(y.mean()), log_var=float(-np.log(1_000))
    )
    objective = ksivi.Wake(1_000, 1)
    draws = objective.draw(KEY, target, family)
    gradient = eqx.filter_grad(lambda q: objective.loss(q, None, draws, target, 0)[0])(family)
    assert abs(float(gradient.conditional.log_var.value[0])) < 4 * np.sqrt(0.5 / 1_000)


@pytest.mark.slow
def test_wake_has_a_gradient_where_some_draws_have_no_density():
    target = ksivi.Target(lambda x: jnp.where(x[0] > -0.5, -0.5 * jnp.sum(x**2), -jnp.inf), dim=3)
    objective, family = ksivi.Wake(200, 50), linear_family()
    draws = objective.draw(KEY, target, family)
    value, gradient = eqx.filter_value_and_grad(
        lambda q: objective.loss(q, None, draws, target, 0)[0]
    )(family)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((value, gradient)))


def test_wake_refuses_what_has_no_density():
    with pytest.raises(ValueError, match="Wake needs log-density values"):
        ksivi.train(
            KEY,
            ksivi.Target.from_score(lambda x: -x, 3),
            linear_family(),
            ksivi.Wake(),
            num_steps=1,
        )
    unknown = linear_family(SampledMixing(lambda key: jax.random.normal(key, (2,))))
    with pytest.raises(ValueError, match="a sampler but no log_density"):
        ksivi.train(KEY, normal_target(), unknown, ksivi.Wake(), num_steps=1)
