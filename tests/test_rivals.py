"""SIVI, SIVI-SM and UIVI on a linear-Gaussian family, where q(x) is known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi.families import SampledMixing
from linear import (
    COVARIANCE,
    KEY,
    LOG_VAR,
    OFFSET,
    exact_elbo,
    linear_family,
    normal_target,
    posterior,
)


def exact_score(x):
    return -np.linalg.solve(COVARIANCE, (np.asarray(x, float) - OFFSET).T).T


def step_of(objective, num_steps=1, optimizer=None):
    """A short run that does not change the family."""
    optimizer = optax.set_to_zero() if optimizer is None else optimizer
    return ksivi.train(
        KEY, normal_target(), linear_family(), objective, optimizer=optimizer, num_steps=num_steps
    )


def test_uivi_estimates_the_score_without_bias():
    """The generating z is a draw of q(z|x), so chains of any length estimate ∇ log q unbiasedly."""
    objective, family, target = (
        ksivi.UIVI(4_000, num_burn_in=3, num_kept=4),
        linear_family(),
        normal_target(),
    )
    state = objective.init(KEY, target, family)
    draws = objective.draw(KEY, target, family)
    step = jnp.zeros((), jnp.int32)
    estimate = jax.jit(lambda draws: objective.prepare(state, draws, target, family, step).score)(
        draws
    )
    x = np.asarray(family.transport((draws.z, draws.xi))[0], float)
    error = np.asarray(estimate, float) - exact_score(x)
    for feature in (np.ones(len(x)), x[:, 0], x[:, 1], x[:, 2], x[:, 0] * x[:, 1]):
        weighed = error * feature[:, None]
        assert np.all(np.abs(weighed.mean(0)) < 4 * weighed.std(0) / np.sqrt(len(x)))
    # The mean over z′ is closer than the conditional score at the generating z.
    single = np.asarray(-draws.xi, float) * np.exp(-0.5 * LOG_VAR)
    assert np.mean(error**2) < 0.5 * np.mean((single - exact_score(x)) ** 2)


def test_uivi_adapts_its_step_size_and_carries_it_on():
    wild, tame = (step_of(ksivi.UIVI(200, step_size=s), num_steps=300) for s in (1.5, 0.01))
    assert wild.state.objective.step_size < 1.45
    assert tame.state.objective.step_size > 0.0101
    assert wild.history["chain_step_size"][0] > wild.history["chain_step_size"][-1]


def test_uivi_refuses_a_mixing_without_density():
    sampler = SampledMixing(lambda key: jax.random.laplace(key, (2,)))
    with pytest.raises(ValueError, match="UIVI needs the density of the mixing"):
        ksivi.train(KEY, normal_target(), linear_family(sampler), ksivi.UIVI(), num_steps=1)
    # SIVI and KSIVI only need the sampler.
    ksivi.train(KEY, normal_target(), linear_family(sampler), ksivi.SIVI(10, 10), num_steps=1)


@pytest.mark.slow
def test_sivis_bound_rises_with_k_to_the_exact_elbo():
    values = []
    for k in (0, 1, 8, 64, 1_000):
        losses = -step_of(ksivi.SIVI(500, num_mixing=k), num_steps=60).history["loss"]
        values.append((losses.mean(), losses.std(ddof=1) / np.sqrt(len(losses))))
    for (low, low_error), (high, high_error) in itertools.pairwise(values):
        assert high - low > -4 * np.hypot(low_error, high_error)
    assert values[1][0] - values[0][0] > 0.05
    for value, error in values:
        assert value < exact_elbo() + 4 * error
    assert abs(values[-1][0] - exact_elbo()) < 4 * values[-1][1] + 0.005


def test_sivi_needs_the_score_alone():
    """The gradient is the same with and without values."""
    options = {"optimizer": optax.sgd(1e-2), "num_steps": 5}
    known = ksivi.train(KEY, normal_target(), linear_family(), ksivi.SIVI(50, 10), **options)
    target = ksivi.Target.from_score(lambda x: -x, dim=3)
    blind = ksivi.train(KEY, target, linear_family(), ksivi.SIVI(50, 10), **options)
    for a, b in zip(
        jax.tree.leaves(known.state.params), jax.tree.leaves(blind.state.params), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_sivi_sms_critic_approaches_the_difference_of_scores():
    objective = ksivi.SIVISM(
        200, (64, 64), critic_optimizer=optax.adam(optax.cosine_decay_schedule(5e-3, 4_000))
    )
    fit = step_of(objective, num_steps=4_000)
    x = fit.posterior.sample(KEY, 5_000)
    best = -np.asarray(x, float) - exact_score(x)
    error = np.asarray(jax.vmap(fit.state.objective.network)(x)) - best
    assert np.mean(error**2) < 0.03 * np.mean(best**2)
    # At its maximum the objective is the Fisher divergence.
    assert abs(fit.history["loss"][-500:].mean() / np.mean(np.sum(best**2, axis=1)) - 1) < 0.1


@pytest.mark.slow
def test_sivi_sm_moves_the_critic_alone_in_its_warm_up():
    options = {"optimizer": optax.adam(1e-2)}
    cold = step_of(ksivi.SIVISM(20, (8,), warm_up=10), num_steps=10, **options)
    warm = step_of(ksivi.SIVISM(20, (8,), warm_up=10), num_steps=12, **options)
    assert all(
        map(np.array_equal, *(jax.tree.leaves(f) for f in (cold.posterior.family, linear_family())))
    )
    assert not all(
        map(np.array_equal, *(jax.tree.leaves(f) for f in (warm.posterior.family, linear_family())))
    )
    assert np.isfinite(cold.history["loss"]).all()
    assert cold.cost.score_evals == 10 * 40


def test_sivi_sms_extra_term_helps_at_first_and_decays():
    decay = ksivi.Decay(start=1.0, factor=1 / 1.004, every=100)
    for step, expected in ((0, 1.0), (99, 1.0), (100, 1 / 1.004), (1_050, 1.004**-10)):
        np.testing.assert_allclose(decay(jnp.asarray(step)), expected, rtol=1e-5)
    objective, family, target = (
        ksivi.SIVISM(50, (8,), score_weight=decay),
        linear_family(),
        normal_target(),
    )
    state, draws = objective.init(KEY, target, family), objective.draw(KEY, target, family)
    loss = lambda one: jax.jit(lambda step: one.loss(family, state, draws, target, step)[0])  # noqa: E731
    plain, weighed = loss(ksivi.SIVISM(50, (8,)))(jnp.asarray(0)), loss(objective)
    late, early = weighed(jnp.asarray(10_000_000)), weighed(jnp.asarray(0))
    np.testing.assert_allclose(late, plain, rtol=1e-4)
    assert abs(early - plain) > 1e-2


def test_a_diverging_rival_ends_with_a_status_and_a_finite_history():
    objective = ksivi.SIVISM(50, (16,), critic_optimizer=optax.sgd(1.0))
    fit = step_of(objective, num_steps=3_000, optimizer=optax.sgd(1.0))
    assert fit.status.kind == "diverged"
    assert all(np.isfinite(values).all() for values in fit.history.values())
    assert np.isfinite(fit.posterior.sample(KEY, 100)).all()


def test_sivi_without_auxiliary_z_trains():
    fit = step_of(ksivi.SIVI(20, num_mixing=0), num_steps=5, optimizer=optax.adam(1e-2))
    assert fit.status.kind == "step limit"
    assert np.isfinite(fit.history["loss"]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ksivi.SIVI(0), "num_samples must be a whole number of at least 1"),
        (lambda: ksivi.SIVI(num_mixing=-1), "num_mixing must be a whole number of at least 0"),
        (lambda: ksivi.SIVI(annealing=0.5), "annealing must be a function of the step"),
        (lambda: ksivi.SIVISM(critic_hidden=5), "critic_hidden must be a list of widths"),
        (
            lambda: ksivi.SIVISM(critic_optimizer=1e-3),
            "critic_optimizer must be an Optax transformation",
        ),
        (lambda: ksivi.SIVISM(critic_steps=0), "critic_steps must be a whole number of at least 1"),
        (lambda: ksivi.SIVISM(warm_up=-1), "warm_up must be a whole number of at least 0"),
        (lambda: ksivi.SIVISM(score_weight=1.0), "score_weight must be a function of the step"),
        (lambda: ksivi.UIVI(num_kept=0), "num_kept must be a whole number of at least 1"),
        (lambda: ksivi.UIVI(step_size=-0.1), "step_size must be one positive number"),
        (lambda: ksivi.Decay(factor=0.0), "factor must be one positive number"),
        (lambda: posterior().log_prob(KEY, jnp.zeros((2, 5))), "x must be an array of shape"),
        (
            lambda: posterior().log_prob(KEY, jnp.zeros((2, 3)), num_mixing=0),
            "num_mixing must be a whole number",
        ),
        (
            lambda: ksivi.diagnostics.importance(
                KEY, ksivi.Target.from_score(lambda x: -x, 3), posterior()
            ),
            "target must have a log density",
        ),
        (
            lambda: ksivi.diagnostics.importance(KEY, ksivi.problems.banana().target, posterior()),
            "posterior must have the target's dim 2, got dim 3",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
