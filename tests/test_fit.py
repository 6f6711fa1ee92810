"""`fit`, its checks and its verdict."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ksivi
from known import COVARIANCE, KEY, MEAN, family_of, gaussian, posterior_of, two_modes
from ksivi._core.mixtures import Mixture
from ksivi.auto._doubts import Findings, weights_move
from ksivi.auto._gaussians import Gaussians, batch_and_match
from ksivi.auto._modes import Modes
from ksivi.auto._start import Start
from ksivi.auto._tails import is_improper
from ksivi.auto._trust import examine
from ksivi.auto._verdict import Answer, conclude
from ksivi.diagnostics import (
    Importance,
    difference,
    discrepancy,
    khat_threshold,
    movement,
    pareto_khat,
    sliced_distance,
    witness,
)
from ksivi.families import GaussianMixing, SemiImplicit, Triangular
from ksivi.results import Code, FitDiagnostics
from ksivi.targets import Evaluator


def test_an_affine_layer_has_the_density_and_the_score_of_its_gaussian():
    family = family_of(MEAN, COVARIANCE)
    x, log_q = family.sample_and_log_prob(jax.random.key(0), 200, 5)
    exact = stats.multivariate_normal(MEAN, COVARIANCE)
    np.testing.assert_allclose(log_q, exact.logpdf(np.asarray(x, np.float64)), atol=1e-3)
    np.testing.assert_allclose(family.log_prob(jax.random.key(1), x, 5), log_q, atol=1e-3)
    np.testing.assert_allclose(family.log_mixture(x, jnp.zeros((4, 0))), log_q, atol=1e-3)
    moved, score = family.transport(family.noise(jax.random.key(2), 50))
    expected = -(np.asarray(moved, np.float64) - MEAN) @ np.linalg.inv(COVARIANCE)
    np.testing.assert_allclose(score, expected, rtol=2e-3, atol=2e-2)


def test_maximum_likelihood_finds_the_moments_of_its_points():
    points = jnp.asarray(
        np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, size=2_000), jnp.float32
    )
    start = SemiImplicit(
        GaussianMixing(0), SemiImplicit.location_scale(3).conditional, Triangular.identity(3)
    )
    objective = ksivi.MaximumLikelihood(points, num_samples=500, num_mixing=1)
    fit = ksivi.train(
        jax.random.key(0), gaussian(), start, objective, num_steps=1_500, learning_rate=1e-2
    )
    draws = fit.posterior.sample(jax.random.key(1), 20_000)
    np.testing.assert_allclose(np.cov(draws.T), np.cov(points.T), rtol=0.15, atol=0.02)
    np.testing.assert_allclose(draws.mean(axis=0), points.mean(axis=0), atol=0.1)


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_khat_is_the_shape_of_the_tail(shape):
    weights = stats.genpareto.rvs(shape, size=20_000, random_state=1)
    # 424 exceedances: the estimate's standard error is near (1 + shape)/√424.
    assert abs(pareto_khat(np.log(weights)) - shape) < 4 * (1 + shape) / np.sqrt(424)
    assert pareto_khat(np.zeros(1_000)) < 0
    assert khat_threshold(100) == 0.5
    assert khat_threshold(100_000) == 0.7


def test_chains_leave_right_draws_and_move_wrong_ones():
    still = movement(jax.random.key(0), gaussian(), posterior_of())
    assert np.abs(still.difference.shift).max() < 4 / np.sqrt(1_000)
    assert np.abs(still.difference.width).max() < 0.2
    assert np.abs(still.memory).max() < 0.3
    moved = movement(
        jax.random.key(0),
        gaussian(),
        posterior_of(MEAN + np.array([1.0, 0.0, 0.0]), 0.25 * COVARIANCE),
    )
    assert abs(moved.difference.shift[0] + 0.5) < 0.2
    assert np.all(moved.difference.width > 0.5)


def test_ksd_rejects_wrong_draws_alone():
    right = discrepancy(jax.random.key(0), gaussian(), posterior_of())
    wrong = discrepancy(
        jax.random.key(0), gaussian(), posterior_of(MEAN + 0.5 * np.sqrt(np.diag(COVARIANCE)))
    )
    assert right.p_value > 0.01
    assert wrong.p_value < 0.01
    assert wrong.low < wrong.ksd2 < wrong.high
    assert "IMQ kernel" in str(wrong)


def test_the_witness_points_to_the_mass():
    shifted = posterior_of(MEAN + np.array([1.0, 0.0, 0.0]))
    f = witness(jax.random.key(0), gaussian(), shifted)
    # s_p − s_q is the constant −Σ⁻¹ (1, 0, 0) here, times a positive kernel.
    direction = np.asarray(f(shifted.sample(jax.random.key(1), 20)))
    expected = -np.linalg.inv(COVARIANCE)[:, 0]
    cosines = direction @ expected / np.linalg.norm(direction, axis=1) / np.linalg.norm(expected)
    assert cosines.min() > 0.99
    assert np.abs(
        witness(jax.random.key(0), gaussian(), posterior_of())(MEAN[None].astype(np.float32))
    ).max() < (0.3 * np.abs(direction).max())


def test_the_sliced_distance_is_that_of_two_normals_and_0_for_one():
    """In normal scores of N(0, I), N(m, I) is |m| / √d away along a random direction, on average squared."""
    rng, weights = np.random.default_rng(0), np.full(8_000, 1 / 8_000)
    for dim in (1, 2, 10):
        there, shift = rng.normal(size=(8_000, dim)), np.full(dim, 0.3)
        assert sliced_distance(rng.normal(size=(10_000, dim)), there, weights) < 0.03
        assert (
            abs(sliced_distance(rng.normal(size=(10_000, dim)) + shift, there, weights) - 0.3)
            < 0.05
        )
    weighted = rng.normal(size=(8_000, 2)) * 1.5
    weights = np.exp(-0.5 * np.sum(weighted**2 * (1 - 1 / 1.5**2), axis=1))
    assert sliced_distance(rng.normal(size=(10_000, 2)), weighted, weights / weights.sum()) < 0.03


def test_wrong_shares_of_many_modes_are_seen_where_means_and_widths_are_right():
    """Eight modes on a circle, every other one with 1.8 times its share: by symmetry all moments agree."""
    rng = np.random.default_rng(0)
    angles = 2 * np.pi * np.arange(8) / 8
    centres = 5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    draw = lambda shares, n: centres[rng.choice(8, n, p=shares)] + 0.3 * rng.normal(size=(n, 2))  # noqa: E731
    even, uneven = np.full(8, 1 / 8), np.tile([1.8, 0.2], 4) / 8
    equal = np.zeros(8_000)
    weighed = Importance(draw(even, 8_000), equal, 0.0, 0.0, 0.0, 0.0, 100)
    for shares, doubted in ((even, False), (uneven, True)):
        draws = draw(shares, 10_000)
        change = difference(draws, weighed.draws)
        assert np.abs(change.shift).max() < 0.05
        found = weights_move(draws, weighed, change, np.eye(2))
        assert any("sliced distance" in str(one) for one in found) == doubted, found


@pytest.mark.slow
def test_the_shift_is_the_difference_of_the_means():
    """To first order, and here exactly: both Gaussians have one covariance."""
    wrong = posterior_of(MEAN + np.array([1.0, 0.5, 0.0]))
    shift = witness(jax.random.key(0), gaussian(), wrong, num_samples=4_000).shift(
        MEAN[None].astype(np.float32)
    )
    # C is estimated from 4,000 draws.
    np.testing.assert_allclose(shift[0], [-1.0, -0.5, 0.0], atol=0.12)


def test_witness_arrows_are_drawn_for_any_two_coordinates(tmp_path):
    ksivi.report.witness_arrows(
        tmp_path / "f.png", jax.random.key(0), gaussian(), posterior_of(), coordinates=(2, 0)
    )
    assert (tmp_path / "f.png").stat().st_size > 10_000
    for pair in ((0, 3), (1, 1), (0,)):
        with pytest.raises(
            ValueError, match="coordinates must be two different indices from 0 to 2"
        ):
            ksivi.report.witness_arrows(
                tmp_path / "g.png", KEY, gaussian(), posterior_of(), coordinates=pair
            )


def test_a_table_fits_the_terminal(monkeypatch):
    fit = _concluded(_trained(), [Code.BUDGET.doubt("word " * 60)], "steps")
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert max(len(line) for line in str(fit).splitlines()) <= columns
        assert str(fit).split().count("word") == 60


def test_a_fit_of_two_modes_is_accurate_and_trusted():
    fit = ksivi.fit(jax.random.key(0), two_modes(), progress=False)
    assert fit.trusted, fit.status
    draws = np.asarray(fit.posterior.sample(jax.random.key(1), 10_000))
    assert abs((draws[:, 0] < 0).mean() - 0.7) < 0.03
    # A continuous map from z leaves some draws between the modes, which widen both.
    assert np.abs(np.log(draws[draws[:, 0] < 0].std(axis=0))).mean() < 0.1
    assert "log evidence" in str(fit)


def _trained():
    start = SemiImplicit.location_scale(3)
    return ksivi.train(KEY, gaussian(), start, ksivi.SIVI(10, 5), num_steps=5, progress=False)


def _start_of(gaussians, modes=None):
    best = Mixture(np.ones(1), gaussians.means[:1], gaussians.roots[:1])
    return Start(gaussians, best, 0.0, 0.0, modes=modes)


def _concluded(trained, doubts, ending):
    """A trained sampler with these doubts, as a fit."""
    findings = Findings(FitDiagnostics(), doubts)
    answer = Answer(trained.posterior, "a trained sampler", findings, trained, ending)
    start = _start_of(Gaussians(np.zeros((1, 3)), np.eye(3)[None], np.zeros(1)))
    return conclude(answer, start, trained.cost, 2.0)


@pytest.mark.slow
def test_an_earlier_fit_is_a_start_and_draws_can_be_refined():
    """From draws of half the width: both corrections widen them, and are named."""
    narrow = posterior_of(covariance=0.5 * COVARIANCE)
    width = lambda draws: np.log(np.asarray(draws).std(axis=0) / np.sqrt(np.diag(COVARIANCE)))  # noqa: E731
    few = ksivi.Recipe(learning_rate=1e-6, chunk=20)
    for refine, tolerance in (("hmc", 0.1), ("importance", 0.15)):
        fit = ksivi.fit(
            KEY, gaussian(), init=narrow, refine=refine, num_steps=60, recipe=few, progress=False
        )
        assert fit.cost.steps == 60
        assert not fit.trusted
        assert np.allclose(width(fit.posterior.sample(KEY, 4_000)), np.log(0.5) / 2, atol=0.1)
        assert np.allclose(width(fit.refined.posterior.sample(KEY, 1_000)), 0, atol=tolerance)
        assert {"hmc": "Hamiltonian", "importance": "importance"}[refine] in fit.refined.by


@pytest.mark.slow
def test_a_fit_that_a_callback_stopped_is_resumed_to_the_same_end(tmp_path):
    """Stopped at a chunk for which no checkpoint was due, at the full rate and in the cooling."""
    target = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 1) ** 2), dim=2)
    run = lambda **options: ksivi.fit(jax.random.key(1), target, num_steps=1_200, **options)  # noqa: E731
    whole = run()
    for stop in (400, 900):
        options = {"checkpoint": tmp_path / str(stop), "every": 10_000}
        stopped = run(callbacks=[lambda chunk, stop=stop: chunk.step >= stop], **options)
        assert stopped.status.kind == "interrupted"
        resumed = run(**options)
        assert resumed.status == whole.status
        np.testing.assert_array_equal(resumed.history["bound"], whole.history["bound"])


FEW = ksivi.Recipe(num_samples=4, num_mixing=4, hidden=(4,), num_pretraining=20, chunk=20)


def test_ctrl_c_returns_what_there_is(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ksivi.auto._answers.examine", stop)
    fit = ksivi.fit(KEY, gaussian(), init=posterior_of(), num_steps=60, recipe=FEW, progress=False)
    assert str(fit.status).startswith("interrupted: stopped by the user after 60 training steps")
    assert not fit.trusted
    assert fit.posterior.sample(KEY, 10).shape == (10, 3)


def test_ctrl_c_in_the_first_chunk_returns_the_start(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ksivi.training.Host, "_chunk", stop)
    fit = ksivi.fit(KEY, gaussian(), init=posterior_of(), recipe=FEW, progress=False)
    assert str(fit.status) == "interrupted: stopped by the user; the draws were not checked"
    assert fit.cost.steps == 0
    assert fit.posterior.sample(KEY, 10).shape == (10, 3)


def _examined(target, best, others=(), modes=None):
    """Doubts about a posterior, with Gaussians at the origin for starts."""
    rng, evaluate = np.random.default_rng(0), Evaluator(target)
    gaussians = batch_and_match(rng, evaluate, np.zeros((2, target.dim)), np.full(2, 0.5))
    found = examine(rng, evaluate, best, _start_of(gaussians, modes), others)
    return " | ".join(map(str, found.doubts))


@pytest.mark.slow
def test_right_draws_raise_no_doubt_and_wrong_ones_do():
    target = gaussian()
    assert _examined(target, posterior_of(), [posterior_of()]) == ""
    shifted = posterior_of(MEAN + 0.5 * np.sqrt(np.diag(COVARIANCE)))
    assert "chains of HMC move the draws" in _examined(target, shifted)
    # The same marginals without their correlations.
    independent = posterior_of(covariance=np.diag(np.diag(COVARIANCE)))
    assert "along their principal axes" in _examined(target, independent)


@pytest.mark.slow
def test_another_run_counts_where_it_found_other_mass():
    target = two_modes()
    one, other = (
        ksivi.Posterior.of(family_of(np.array(mean), np.eye(2)), target)
        for mean in ([-4.0, 0.0], [4.0, 1.0])
    )
    narrow = ksivi.Posterior.of(family_of(np.array([-4.0, 0.0]), 0.3 * np.eye(2)), target)
    assert "independent runs differ" in _examined(target, one, [other])
    assert "independent runs differ" not in _examined(target, one, [narrow])
    places = np.array([[-4.0, 0.0], [4.0, 1.0]])
    labels = np.repeat([0, 1], [700, 300])
    particles = places[labels] + np.random.default_rng(0).normal(size=(1_000, 2))
    missed = _examined(target, one, modes=Modes(places, particles, labels))
    assert "a mode with about 30% of the mass holds 0.0% of the draws, at least " in missed
    assert "% to be trusted: near x[0] = 4" in missed


@pytest.mark.slow
def test_a_budget_that_is_spent_ends_the_training_and_says_so():
    """The first chunk alone takes as long as the budget."""
    waits = iter([6.0])
    fit = ksivi.fit(
        KEY,
        gaussian(),
        init=posterior_of(),
        budget_s=6,
        recipe=ksivi.Recipe(chunk=50),
        callbacks=[lambda chunk: time.sleep(next(waits, 0.0))],
        progress=False,
    )
    assert fit.cost.steps == 100  # one chunk at the full rate, one of cooling
    assert fit.trusted, fit.status
    assert "as many as 6 s allow on this machine" in str(fit.status)


def test_a_budget_that_ends_in_the_search_is_an_error():
    """It says how much there was to do, and what would help."""
    words = (
        r"budget_s = 1e-06 s ended during the search, .*; a fit needs at least 80,000: give a larger "
        r"budget_s, or a log density that is quicker\. "
    )
    with pytest.raises(RuntimeError, match=words + "If the log density is a sum over many rows, T"):
        ksivi.fit(KEY, gaussian(), budget_s=1e-6, progress=False)
    data = jnp.ones((30_000, 2))
    prior, likelihood = (
        lambda x: -0.5 * jnp.sum(x**2),
        lambda x, rows: -jnp.sum((rows - x[None]) ** 2),
    )
    with_rows = ksivi.Target.from_data(prior, likelihood, data, dim=2)
    with pytest.raises(
        RuntimeError, match=words + r"Each evaluation reads all 30,000 rows\. With "
    ):
        ksivi.fit(KEY, with_rows, budget_s=1e-6, progress=False)
    few = ksivi.Target.from_data(prior, likelihood, data[:10], dim=2)
    with pytest.raises(RuntimeError, match=r"or a log density that is quicker$"):
        ksivi.fit(KEY, few, budget_s=1e-6, progress=False)


def test_an_improper_posterior_is_not_trusted():
    flat = ksivi.Target(lambda x: -0.5 * x[0] ** 2 - 0.5 * jnp.log1p(x[1] ** 2), dim=2)
    cauchy = ksivi.Target(lambda x: -0.5 * x[0] ** 2 - jnp.log1p(x[1] ** 2), dim=2)
    draws = np.random.default_rng(0).normal(size=(500, 2))
    doubt = is_improper(Evaluator(flat), draws, np.eye(2))
    assert doubt.code == "improper"
    assert "improper" in str(doubt)
    assert "as x[1] grows" in str(doubt)
    assert is_improper(Evaluator(cauchy), draws, np.eye(2)) is None
    ridge = ksivi.Target(lambda x: -0.5 * (x[0] - x[1]) ** 2, dim=2)
    diagonal = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    assert "as x[0] grows" in str(is_improper(Evaluator(ridge), draws, diagonal))
    trained = _trained()
    fit = _concluded(trained, [doubt], "settled")
    assert not fit.trusted
    assert str(fit.status).startswith("not trusted: the posterior may be improper")
    assert _concluded(trained, [], "settled").trusted


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"target must be a ksivi\.Target"):
        ksivi.fit(jax.random.key(0), lambda x: x)
    with pytest.raises(ValueError, match="num_steps"):
        ksivi.fit(jax.random.key(0), gaussian(), num_steps=0)
    with pytest.raises(ValueError, match='refine must be "hmc" or "importance", got \'mcmc\''):
        ksivi.fit(KEY, gaussian(), refine="mcmc")
    with pytest.raises(ValueError, match="init must have the target's dim 3, got dim 2"):
        ksivi.fit(
            KEY, gaussian(), init=ksivi.Posterior.of(SemiImplicit.location_scale(2), two_modes())
        )
    with pytest.raises(ValueError, match="init must be an earlier fit"):
        ksivi.fit(KEY, gaussian(), init=3)
    objective = ksivi.MaximumLikelihood(jnp.zeros((5, 2)))
    with pytest.raises(ValueError, match="points must have the family's dim"):
        ksivi.train(
            jax.random.key(0), gaussian(), family_of(MEAN, COVARIANCE), objective, num_steps=5
        )
