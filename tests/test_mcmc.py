"""SGLD, MALA and NUTS against exact draws, and their diagnostics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp, mannwhitneyu

import ksivi
from ksivi.families import Empirical
from ksivi.methods._chains import agreement
from ksivi.results import ChainDiagnostics

pytest.importorskip("blackjax")

KEY = jax.random.key(0)
SCALE = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [-0.3, 0.4, 0.5]])


def gaussian():
    precision = jnp.asarray(np.linalg.inv(SCALE @ SCALE.T), float)
    return ksivi.Target(lambda x: -0.5 * x @ precision @ x, dim=3)


def normal(dim=2):
    return ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=dim)


# Chains of two lengths for all tests that do not ask for others: R-hat is compiled for each shape, in seconds.
NUTS = ksivi.NUTS(4, 300, 1_000)
MANY = {"num_chains": 1_000, "num_draws": 20}


@functools.cache
def nuts_on_normal():
    return ksivi.run(KEY, normal(), NUTS)


def funnel():
    return ksivi.Target(
        lambda x: -(x[0] ** 2) / 18 - 0.5 * x[1] ** 2 * jnp.exp(-x[0]) - 0.5 * x[0], dim=2
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        ksivi.MALA(0.3, 2_000, num_warmup=400, num_draws=1, thin=1),
        ksivi.MALA(0.3, 2_000, num_warmup=400, num_draws=1, thin=1, target_acceptance=None),
        ksivi.NUTS(1_000, num_warmup=150, num_draws=1),
    ],
    ids=["mala", "mala, fixed step", "nuts"],
)
def test_chains_pass_rank_tests_against_exact_draws(method):
    """The last states of independent chains, against exact draws: location and shape of every coordinate."""
    fit = ksivi.run(KEY, gaussian(), method)
    draws = np.asarray(fit.posterior.family.points)
    exact = np.random.default_rng(0).normal(size=draws.shape) @ SCALE.T
    for direction in (*np.eye(3), np.array([1.0, -1.0, 1.0])):
        for test in (mannwhitneyu, ks_2samp):
            assert test(draws @ direction, exact @ direction).pvalue > 1e-3, (direction, test)


def test_mala_is_sensitive_to_its_metropolis_test():
    """The same step without the test, which is SGLD, is caught by the same rank test."""
    step = 0.3
    fit = ksivi.run(KEY, gaussian(), ksivi.SGLD(step, 2_000, num_warmup=400, num_draws=1, thin=1))
    draws = np.asarray(fit.posterior.family.points)
    exact = np.random.default_rng(0).normal(size=draws.shape) @ SCALE.T
    assert (
        min(ks_2samp(draws @ d, exact @ d).pvalue for d in (*np.eye(3), np.array([1.0, -1.0, 1.0])))
        < 1e-3
    )


@pytest.mark.parametrize("step_size", [pytest.param(0.05, marks=pytest.mark.slow), 0.8])
def test_sglds_stationary_variance(step_size):
    """x ← (1 − ε/2) x + √ε ξ has the stationary variance 1 / (1 − ε/4), which is 1 for a small step."""
    method = ksivi.SGLD(
        step_size, 1_000, num_warmup=400, num_draws=20, thin=int(12 / step_size) + 1
    )
    draws = np.asarray(ksivi.run(KEY, normal(), method).posterior.family.points)
    variance, error = draws.var(), np.sqrt(2 / draws.size)
    assert abs(variance * (1 - step_size / 4) - 1) < 4 * error
    assert (abs(variance - 1) < 0.03) == (step_size < 0.1)


@pytest.mark.slow
def test_sgld_uses_minibatches_and_all_rows_where_there_are_none():
    rows = jax.random.normal(KEY, (100, 1)) + 3.0
    log_likelihood = lambda x, batch: -0.5 * jnp.sum((batch - x[None]) ** 2)  # noqa: E731
    results = []
    for batch_size in (None, 10):
        target = ksivi.Target.from_data(
            lambda x: 0.0 * x[0], log_likelihood, rows, dim=1, batch_size=batch_size
        )
        fit = ksivi.run(KEY, target, ksivi.SGLD(1e-3, 500, num_warmup=500, num_draws=10, thin=100))
        results.append(np.asarray(fit.posterior.family.points))
    for draws in results:
        assert abs(draws.mean() - float(rows.mean())) < 4 * draws.std() / np.sqrt(draws.size / 2)
    np.testing.assert_allclose(results[0].std(), 0.1, rtol=0.1)
    # Noise of minibatches adds to that of the dynamics.
    assert results[1].std() > 1.1 * results[0].std()


@pytest.mark.slow
def test_nuts_uses_all_rows_of_a_minibatched_target():
    rows = jax.random.normal(KEY, (100, 1)) + 3.0
    log_likelihood = lambda x, batch: -0.5 * jnp.sum((batch - x[None]) ** 2)  # noqa: E731
    target = ksivi.Target.from_data(
        lambda x: 0.0 * x[0], log_likelihood, rows, dim=1, batch_size=10
    )
    draws = np.asarray(ksivi.run(KEY, target, ksivi.NUTS()).posterior.family.points)
    np.testing.assert_allclose([draws.mean(), draws.std()], [float(rows.mean()), 0.1], rtol=0.05)


def test_sgld_clips():
    fit = ksivi.run(KEY, normal(), ksivi.SGLD(0.5, **MANY, num_warmup=10, thin=1, clip=0.5))
    assert np.abs(fit.posterior.family.points).max() <= 0.5


def test_a_diverging_sgld_ends_with_a_status_and_a_finite_history():
    fit = ksivi.run(KEY, normal(), ksivi.SGLD(10.0))
    assert str(fit.status).startswith("diverged: ")
    assert all(np.isfinite(values).all() for values in fit.history.values())
    assert np.isfinite(fit.posterior.sample(KEY, 100)).all()
    assert not fit.trusted
    with pytest.raises(RuntimeError, match="diverged"):
        ksivi.run(KEY, normal(), ksivi.SGLD(10.0), throw=True)


def test_chains_that_do_not_agree_are_not_trusted():
    """Two modes that no chain crosses between."""

    def modes(x):
        return jnp.logaddexp(-0.5 * (x[0] - 30) ** 2, -0.5 * (x[0] + 30) ** 2) - 0.5 * x[1] ** 2

    start = jnp.asarray([[-30.0, 0.0], [-30.0, 0.0], [30.0, 0.0], [30.0, 0.0]])
    fit = ksivi.run(KEY, ksivi.Target(modes, dim=2), ksivi.NUTS(4, 300, 1_000, start=start))
    assert str(fit.status).startswith("not trusted: R-hat ")
    assert fit.diagnostics.r_hat > 1.5
    assert not fit.trusted


def test_divergent_transitions_are_counted_and_not_trusted():
    fit = ksivi.run(KEY, funnel(), NUTS)
    assert fit.diagnostics.divergences > 0
    assert str(fit.status).startswith(
        f"not trusted: {fit.diagnostics.divergences:,} divergent transitions"
    )


def test_a_chain_that_never_moves_is_not_trusted():
    fit = ksivi.run(
        KEY, normal(), ksivi.MALA(50.0, **MANY, num_warmup=20, thin=1, target_acceptance=None)
    )
    assert fit.status.kind == "not trusted"
    assert fit.diagnostics.acceptance < 0.01


def test_one_chain_or_few_draws_say_nothing_about_agreement():
    assert agreement(np.zeros((100, 1, 2))) == ChainDiagnostics()
    assert agreement(np.zeros((3, 10, 2))) == ChainDiagnostics()
    fit = ksivi.run(KEY, normal(), ksivi.NUTS(1, 50, 50))
    assert str(fit.status) == "not trusted: R-hat needs at least two chains with 4 draws each"
    assert not fit.trusted
    few = ksivi.run(KEY, funnel(), ksivi.NUTS(1, 100, 300))
    assert "divergent transitions; R-hat needs at least two chains" in str(few.status)


@pytest.mark.slow
def test_a_resumed_run_remembers_its_divergences():
    first = ksivi.run(KEY, funnel(), ksivi.NUTS(4, 100, 300))
    rest = ksivi.run(KEY, funnel(), ksivi.NUTS(4, 100, 303), resume=first.state)
    assert rest.diagnostics.divergences >= first.diagnostics.divergences > 0
    assert 0 < rest.diagnostics.acceptance < 1
    assert not rest.trusted
    assert rest.cost.steps == 3
    assert list(rest.history["step"]) == [400, 401, 402]
    assert len(rest.posterior.family.points) == 4 * 303


@pytest.mark.parametrize(
    ("resumed", "message"),
    [
        (
            lambda state: (normal(), ksivi.NUTS(4, 310, 1_040), state),
            "run of the same NUTS, which may only be shorter",
        ),
        (
            lambda state: (normal(), ksivi.SVGD(4, 900), state),
            "run of the same SVGD, which may only be shorter",
        ),
        (
            lambda state: (gaussian_at(5.0), ksivi.NUTS(4, 300, 1_001), state),
            "must come from a run on the same target",
        ),
    ],
    ids=["warm-up", "method", "target"],
)
def test_only_the_same_run_can_be_resumed(resumed, message):
    target, method, state = resumed(nuts_on_normal().state)
    with pytest.raises(ValueError, match=message):
        ksivi.run(KEY, target, method, resume=state)


def gaussian_at(centre):
    return ksivi.Target(lambda x: -0.5 * jnp.sum((x - centre) ** 2), dim=2)


def test_mala_without_warm_up_uses_the_step_it_is_given():
    narrow = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2) * 1e4, dim=2)
    start = jnp.asarray(0.01 * np.random.default_rng(0).normal(size=(1_000, 2)), float)
    fit = ksivi.run(KEY, narrow, ksivi.MALA(1e-4, **MANY, num_warmup=0, thin=1, start=start))
    assert fit.diagnostics.acceptance > 0.8


@pytest.mark.parametrize(
    "chunk_size", [1, 7, *(pytest.param(size, marks=pytest.mark.slow) for size in (3, 100))]
)
def test_a_bad_state_never_becomes_a_draw(chunk_size):
    """SGLD walks over the edge of the support; what is kept does not depend on where a chunk ends."""
    edge = ksivi.Target(lambda x: jnp.sum(jnp.log(5 - x) + 20 * x), dim=1)
    method = ksivi.SGLD(0.02, 3, num_warmup=0, num_draws=200, thin=1, start=jnp.zeros((3, 1)))
    fit = ksivi.run(KEY, edge, method, chunk_size=chunk_size)
    assert fit.status.kind == "diverged"
    points = fit.posterior.family.points
    assert np.isfinite(jax.vmap(edge.log_density)(points)).all()
    whole = ksivi.run(KEY, edge, method, chunk_size=50)
    assert np.array_equal(points, whole.posterior.family.points)
    assert str(fit.status) == str(whole.status)
    assert np.isfinite(fit.history["loss"]).all()


def test_starts_are_in_the_targets_own_coordinates():
    far = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 100.0) ** 2 / 25.0), dim=2)
    whitened = far.whitened(jnp.full(2, 100.0), jnp.full(2, 5.0))
    fit = ksivi.run(KEY, whitened, ksivi.NUTS(4, 20, 1, start=jnp.full((4, 2), 110.0)))
    np.testing.assert_allclose(fit.history["loss"][0], 4 - 2 * np.log(5), rtol=1e-4)


def test_r_hat_and_ess_of_independent_draws():
    draws = np.random.default_rng(0).normal(size=(1_000, 4, 3)).astype(np.float32)
    found = agreement(draws)
    assert 0.99 < found.r_hat < 1.01
    assert 3_000 < found.effective_sample_size < 5_000
    draws[:, 0] += 1
    assert agreement(draws).r_hat > 1.05


def test_thinning_keeps_every_kth_state():
    every = ksivi.run(
        KEY, normal(), ksivi.MALA(0.5, 3, num_warmup=10, num_draws=40, thin=1)
    ).state.kept[0]
    fifth = ksivi.run(
        KEY, normal(), ksivi.MALA(0.5, 3, num_warmup=10, num_draws=8, thin=5)
    ).state.kept[0]
    assert np.array_equal(fifth, every[4::5])


@pytest.mark.slow
def test_dense_mass_matrices_sample_too():
    fit = ksivi.run(KEY, gaussian(), ksivi.NUTS(dense_mass=True))
    assert fit.trusted
    covariance = np.cov(np.asarray(fit.posterior.family.points).T)
    np.testing.assert_allclose(covariance, SCALE @ SCALE.T, atol=0.15)


def test_values_are_needed_where_a_metropolis_test_is():
    score_only = ksivi.Target.from_score(lambda x: -x, dim=2)
    for method, name in ((ksivi.MALA(), "MALA"), (ksivi.NUTS(), "NUTS")):
        with pytest.raises(
            ValueError, match=f"{name} needs log-density values, but this target has only a score"
        ):
            ksivi.run(KEY, score_only, method)
    assert ksivi.run(KEY, score_only, ksivi.SGLD(0.1, 10, 10, 5, thin=1)).status.kind in (
        "step limit",
        "not trusted",
    )


def test_stored_draws_are_the_chains_draws():
    fit = nuts_on_normal()
    assert isinstance(fit.posterior.family, Empirical)
    assert fit.posterior.family.points.shape == (4_000, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ksivi.SGLD(0.0), "step_size must be one positive number"),
        (lambda: ksivi.SGLD(num_chains=0), "num_chains must be a whole number of at least 1"),
        (lambda: ksivi.SGLD(clip=-1.0), "clip must be one positive number"),
        (lambda: ksivi.MALA(thin=0), "thin must be a whole number of at least 1"),
        (
            lambda: ksivi.MALA(target_acceptance=1.5),
            "target_acceptance must be a probability between 0 and 1",
        ),
        (
            lambda: ksivi.NUTS(target_acceptance=None),
            "target_acceptance must be a probability between 0 and 1",
        ),
        (lambda: ksivi.NUTS(num_warmup=5), "num_warmup must be a whole number of at least 20"),
        (lambda: ksivi.NUTS(max_doublings=0), "max_doublings must be a whole number of at least 1"),
        (
            lambda: ksivi.NUTS(3, start=jnp.zeros((4, 2))),
            "start must have 3 points, one per particle or chain, got 4",
        ),
        (
            lambda: ksivi.reference_draws(KEY, normal(), method=ksivi.MALA()),
            "method must be a ksivi.NUTS",
        ),
        (
            lambda: ksivi.reference_draws(KEY, normal(), transform=lambda u: u[:1]),
            "transform must map \\(2,\\)",
        ),
        (lambda: ksivi.reference_draws(KEY, lambda x: x), "target must be a ksivi.Target"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
