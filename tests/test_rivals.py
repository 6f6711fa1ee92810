"""SIVI, SIVI-SM, UIVI and importance weights on a linear-Gaussian family, where q(x) is known."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import multivariate_normal

import ksivi
from ksivi._core.numerics import truncated_weights
from ksivi.families import GaussianMixing, SampledMixing, WideMixing
from linear import (
    COVARIANCE,
    KEY,
    LOG_CONSTANT,
    LOG_VAR,
    OFFSET,
    WEIGHT,
    linear_family,
    normal_target,
)

EXACT = multivariate_normal(OFFSET, COVARIANCE)


def exact_score(x):
    return -np.linalg.solve(COVARIANCE, (np.asarray(x, float) - OFFSET).T).T


def exact_elbo():
    """log Z − KL(q‖p) for p = N(0, I)."""
    kl = 0.5 * (np.trace(COVARIANCE) + OFFSET @ OFFSET - 3 - np.linalg.slogdet(COVARIANCE)[1])
    return LOG_CONSTANT - kl


def posterior(coordinates=None):
    return ksivi.Posterior(linear_family(), coordinates, (("x", (3,)),))


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


@pytest.mark.parametrize("num_mixing", [1, 10, 1_000])
def test_the_evidence_estimate_covers_the_exact_one(num_mixing):
    result = ksivi.diagnostics.importance(
        KEY, normal_target(), posterior(), num_samples=40_000, num_mixing=num_mixing
    )
    assert abs(result.log_evidence - LOG_CONSTANT) < 4 * result.log_evidence_error
    assert result.log_evidence_error < 0.05
    assert result.elbo < exact_elbo() + 4 * result.elbo_error
    if num_mixing == 1_000:
        assert abs(result.elbo - exact_elbo()) < 4 * result.elbo_error + 0.005
    assert result.num_mixing == num_mixing
    np.testing.assert_allclose(result.weights.sum(), 1)
    assert 1 < result.effective_sample_size <= 40_000


def test_weighted_draws_have_the_targets_moments():
    result = ksivi.diagnostics.importance(KEY, normal_target(), posterior(), num_samples=40_000)
    mean = result.weights @ result.draws
    error = np.sqrt(result.weights**2 @ (result.draws - mean) ** 2)
    assert np.all(np.abs(mean) < 4 * error)
    np.testing.assert_allclose(result.weights @ result.draws**2 - mean**2, 1, atol=0.1)


def test_weights_do_not_depend_on_the_coordinates_of_training():
    affine = ksivi.targets.Affine(jnp.array([1.0, -1.0, 0.5]), jnp.array([0.5, 1.5, 0.8]))
    moved = posterior(affine)
    whitened = normal_target().whitened(affine.loc, affine.scale)
    results = [
        ksivi.diagnostics.importance(KEY, t, moved, num_samples=20_000)
        for t in (normal_target(), whitened)
    ]
    np.testing.assert_allclose(results[0].log_weights, results[1].log_weights, rtol=1e-5)
    assert abs(results[0].log_evidence - LOG_CONSTANT) < 4 * results[0].log_evidence_error


def test_a_wider_mixing_has_the_density_that_it_draws_from():
    base = GaussianMixing(3)
    wide = WideMixing(base, 1.5)
    z = wide.sample(KEY, 100_000)
    ratio = np.exp(np.asarray(jax.vmap(base.log_prob)(z) - jax.vmap(wide.log_prob)(z), np.float64))
    assert ratio.max() <= 2 * (1 + 1e-5)
    for values in (ratio, ratio * np.asarray(z)[:, 0] ** 2):
        assert abs(values.mean() - 1) < 4 * values.std() / np.sqrt(len(values))


def stretched(stretch, shift=0.0):
    """q with z scaled and shifted: its mean, its covariance, and the target, with evidence 1."""
    mean, covariance = (
        OFFSET + shift * WEIGHT.sum(axis=0),
        stretch**2 * WEIGHT.T @ WEIGHT + np.diag(np.exp(LOG_VAR)),
    )
    precision, centre = jnp.asarray(np.linalg.inv(covariance), float), jnp.asarray(mean, float)
    constant = -0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    return (
        mean,
        covariance,
        ksivi.Target(lambda x: constant - 0.5 * (x - centre) @ precision @ (x - centre), dim=3),
    )


def test_a_wider_proposal_keeps_the_evidence_and_makes_weights_light():
    """The weights of q have no finite variance; the wider proposal has bounded weights."""
    target = stretched(1.6)[2]
    plain, wide = (
        ksivi.diagnostics.importance(KEY, target, posterior(), num_samples=20_000, widening=s)
        for s in (1.0, 2.0)
    )
    assert abs(wide.log_evidence) < 4 * wide.log_evidence_error
    assert ksivi.diagnostics.pareto_khat(plain.log_weights) > 0.5
    assert ksivi.diagnostics.pareto_khat(wide.log_weights) < 0.3
    with pytest.raises(ValueError, match="widening must be one positive number, got 0"):
        ksivi.diagnostics.importance(KEY, target, posterior(), widening=0)


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


def test_weights_are_cut_and_survive_what_is_not_finite():
    for xp in (np, jnp):
        weights = truncated_weights(xp.asarray([0.0, 10.0, xp.nan, -xp.inf] + [0.0] * 96))
        assert weights[2] == weights[3] == 0
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
        np.testing.assert_allclose(
            weights[1] / weights[0], 10 * np.mean([np.exp(10), *[1] * 97, 0, 0]), rtol=1e-3
        )
        assert not truncated_weights(xp.full(5, -xp.inf)).any()


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


def test_log_prob_estimates_the_exact_log_density():
    x = posterior().sample(KEY, 500)
    estimate = np.asarray(posterior().log_prob(jax.random.key(1), x, num_mixing=20_000))
    assert np.abs(estimate - EXACT.logpdf(np.asarray(x))).mean() < 0.03
    coarse = np.asarray(posterior().log_prob(jax.random.key(1), x, num_mixing=10))
    assert coarse.mean() < estimate.mean()
    scale = jnp.asarray(np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.0, 0.3, 0.5]]), float)
    affine = ksivi.targets.Affine(jnp.ones(3), scale)
    moved = posterior(affine).log_prob(jax.random.key(1), jax.vmap(affine)(x), num_mixing=20_000)
    np.testing.assert_allclose(moved, estimate - np.log(np.linalg.det(scale)), atol=1e-3)


def test_sivi_without_auxiliary_z_trains():
    fit = step_of(ksivi.SIVI(20, num_mixing=0), num_steps=5, optimizer=optax.adam(1e-2))
    assert fit.status.kind == "step limit"
    assert np.isfinite(fit.history["loss"]).all()


def test_weights_where_the_target_is_zero():
    half = ksivi.Target(
        lambda x: jnp.where(x[0] > 0, -0.5 * jnp.sum(x**2), -jnp.inf), dim=3, test_point=jnp.ones(3)
    )
    result = ksivi.diagnostics.importance(KEY, half, posterior(), num_samples=20_000)
    assert result.elbo == -np.inf
    exact = np.log(0.5 * (2 * np.pi) ** 1.5)
    assert abs(result.log_evidence - exact) < 4 * result.log_evidence_error
    nowhere = ksivi.Target(
        lambda x: jnp.where(x[0] > 99, 0.0, -jnp.inf), dim=3, test_point=jnp.full(3, 100.0)
    )
    with pytest.raises(ValueError, match="target must not be zero at every draw"):
        ksivi.diagnostics.importance(KEY, nowhere, posterior())


@pytest.mark.slow
def test_small_conditional_scales_do_not_spoil_the_weights():
    """With σ a thousandth of the spread of the means, in 50 dimensions."""
    family = ksivi.SemiImplicit.mlp(KEY, dim=50, mixing_dim=1, hidden=(20,), log_var=-13.8)
    _, log_q = family.sample_and_log_prob(KEY, 200, 500)
    assert np.isfinite(log_q).all()
    with jax.enable_x64(True):
        double = jax.tree.map(lambda a: a.astype(jnp.float64), family)
        noise_key, mixing_key = jax.random.split(KEY)
        noise = tuple(a.astype(jnp.float64) for a in family.noise(noise_key, 200))
        others = family.mixing.sample(mixing_key, 500, jnp.float32).astype(jnp.float64)
        exact = double.transport_and_log_prob(noise, others)[1]
    np.testing.assert_allclose(log_q, exact, atol=0.02)


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
