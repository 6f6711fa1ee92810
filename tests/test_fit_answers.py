"""The answers of `fit`: a Gaussian, a mixture of Gaussians or a trained sampler, the first that passes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ksivi
from known import COVARIANCE, KEY, MEAN, ROUGH, assert_equal_moments, gaussian
from ksivi._core.mixtures import Mixture
from ksivi.auto import _answers
from ksivi.auto._better import polished
from ksivi.families import GaussianMixture, SemiImplicit
from ksivi.targets import Evaluator, OutOfTime

BEND = 1.0
FEW = ksivi.Recipe(num_samples=4, num_mixing=4, hidden=(4,), num_pretraining=20, chunk=20)


def banana():
    """x₀ ~ N(0, 1) and x₁ | x₀ ~ N(b (x₀² − 1), 1): both means are 0."""
    return ksivi.Target(
        lambda x: -0.5 * (x[0] ** 2 + (x[1] - BEND * (x[0] ** 2 - 1)) ** 2), dim=2, names=["a", "b"]
    )


def exact_bananas(n):
    x, e = np.random.default_rng(0).normal(size=(2, n))
    return np.stack([x, e + BEND * (x**2 - 1)], axis=1)


def number_of(fit):
    return len(fit.posterior.family.shares)


@pytest.fixture(scope="module")
def of_gaussian():
    return ksivi.fit(KEY, gaussian(), progress=False)


@pytest.fixture(scope="module")
def of_banana():
    return ksivi.fit(KEY, banana(), progress=False)


def test_a_gaussian_is_answered_by_a_gaussian(of_gaussian):
    assert str(of_gaussian.status) == (
        "converged: a Gaussian passed all checks; 1 mode found within 10 sd"
    )
    assert of_gaussian.trusted
    assert of_gaussian.diagnostics.answer == "a Gaussian"
    assert isinstance(of_gaussian.posterior.family, GaussianMixture)
    assert number_of(of_gaussian) == 1
    exact = np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, size=20_000)
    assert_equal_moments(of_gaussian.posterior.sample(KEY, 20_000), exact, 20_000)
    evidence = 0.5 * np.linalg.slogdet(2 * np.pi * COVARIANCE)[1]
    assert of_gaussian.diagnostics.log_evidence == pytest.approx(evidence, abs=0.01)


def test_an_answer_without_training_has_no_steps(of_gaussian):
    assert {name: len(values) for name, values in of_gaussian.history.items()} == {
        "step": 0,
        "loss": 0,
    }
    assert of_gaussian.state is None
    assert of_gaussian.cost.steps == 0
    assert of_gaussian.cost.score_evals > 0
    assert of_gaussian.diagnostics.training is None
    shown = dict(of_gaussian.diagnostics.rows())
    assert shown["answer"] == "a Gaussian"
    assert "runs differ" not in shown


def test_the_density_of_a_gaussian_is_exact(of_gaussian):
    x = of_gaussian.posterior.sample(KEY, 500)
    exact = stats.multivariate_normal(MEAN, COVARIANCE).logpdf(np.asarray(x, np.float64))
    np.testing.assert_allclose(of_gaussian.posterior.log_prob(KEY, x), exact, atol=0.02)
    again = of_gaussian.posterior.log_prob(jax.random.key(5), x, num_mixing=1)
    np.testing.assert_array_equal(again, of_gaussian.posterior.log_prob(KEY, x))


def test_a_gaussian_is_saved_and_loaded(of_gaussian, tmp_path):
    of_gaussian.posterior.save(tmp_path / "post.safetensors")
    loaded = ksivi.load(tmp_path / "post.safetensors")
    x = of_gaussian.posterior.sample(KEY, 50)
    np.testing.assert_array_equal(loaded.sample(KEY, 50), x)
    np.testing.assert_array_equal(loaded.log_prob(KEY, x), of_gaussian.posterior.log_prob(KEY, x))


def test_a_record_without_steps_is_read_again_and_makes_a_page(of_gaussian, tmp_path):
    pytest.importorskip("matplotlib")
    ksivi.Record.of(of_gaussian).write(tmp_path)
    read = ksivi.read_record(tmp_path)
    assert read.diagnostics.answer == "a Gaussian"
    assert [len(values) for values in read.history.values()] == [0, 0]
    assert "a Gaussian" in ksivi.report.run_page(read)


def test_a_gaussian_and_a_mixture_go_to_arviz(of_gaussian, of_banana):
    pytest.importorskip("arviz")
    for fit, names in ((of_gaussian, ["x"]), (of_banana, ["a", "b"])):
        data = fit.posterior.to_arviz(KEY, 200)
        assert list(data["posterior"].data_vars) == names
        log_q = np.ravel(data["sample_stats"]["log_q"].to_numpy())
        expected = fit.posterior.log_prob(KEY, fit.posterior.sample(KEY, 200))
        np.testing.assert_allclose(log_q, expected, rtol=1e-5, atol=1e-5)


def test_a_banana_is_answered_by_a_mixture(of_banana):
    assert of_banana.trusted, of_banana.status
    assert number_of(of_banana) > 1
    name = f"a mixture of {number_of(of_banana)} Gaussians"
    assert of_banana.diagnostics.answer == name
    assert str(of_banana.status).startswith(f"converged: {name} passed all checks")
    assert_equal_moments(of_banana.posterior.sample(KEY, 20_000), exact_bananas(20_000), ROUGH)


def test_the_density_of_a_mixture_is_near_the_targets(of_banana):
    """KL(p, q) in nats, over exact draws. Here 1/p is known with its constant, 2π."""
    x = jnp.asarray(exact_bananas(4_000), jnp.float32)
    log_p = jax.vmap(banana().log_density)(x) - np.log(2 * np.pi)
    apart = np.asarray(log_p - of_banana.posterior.log_prob(KEY, x), np.float64)
    assert -4 * apart.std() / np.sqrt(len(apart)) < apart.mean() < 0.05


def test_the_same_key_gives_the_same_draws(of_banana):
    again = ksivi.fit(KEY, banana(), progress=False)
    assert again.status == of_banana.status
    draws = of_banana.posterior.sample(KEY, 100)
    np.testing.assert_array_equal(again.posterior.sample(KEY, 100), draws)
    other = ksivi.fit(jax.random.key(7), banana(), progress=False)
    assert not np.array_equal(other.posterior.sample(KEY, 100), draws)


def test_a_mixture_is_tried_first_where_it_is_asked_for(of_gaussian):
    """Of a Gaussian the best mixture is one Gaussian. It is fitted to draws, and so another one."""
    fit = ksivi.fit(KEY, gaussian(), at_least="mixture", progress=False)
    assert fit.trusted, fit.status
    assert fit.diagnostics.training is None
    means = [np.asarray(one.posterior.family.means[0]) for one in (fit, of_gaussian)]
    assert not np.array_equal(*means)
    exact = np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, size=20_000)
    assert_equal_moments(fit.posterior.sample(KEY, 20_000), exact, ROUGH)


class TrainingError(Exception):
    """Raised in place of a training."""


@pytest.mark.parametrize(
    ("options", "trains"),
    [
        ({}, False),
        ({"callbacks": []}, False),
        ({"at_least": "gaussian"}, False),
        ({"at_least": "mixture"}, False),
        ({"at_least": "sampler"}, True),
        ({"num_steps": 60}, True),
        ({"recipe": FEW}, True),
        ({"callbacks": [print]}, True),
        ({"checkpoint": "snapshots"}, True),
        ({"at_least": "gaussian", "num_steps": 60}, False),
        ({"at_least": "mixture", "recipe": FEW, "callbacks": [print]}, False),
    ],
    ids=lambda case: "+".join(case) if isinstance(case, dict) else str(case),
)
def test_what_is_about_training_asks_for_a_sampler(
    options, trains, of_gaussian, tmp_path, monkeypatch
):
    def train(*_):
        raise TrainingError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_answers, "train_runs", train)
    monkeypatch.setattr(_answers, "new_families", lambda *_: [])
    run = lambda: ksivi.fit(KEY, gaussian(), init=of_gaussian, progress=False, **options)  # noqa: E731
    if trains:
        with pytest.raises(TrainingError):
            run()
    else:
        assert run().trusted


@pytest.mark.slow
def test_a_sampler_is_trained_from_a_gaussian(of_gaussian):
    fit = ksivi.fit(
        KEY, gaussian(), init=of_gaussian, num_steps=60, recipe=FEW, refine="hmc", progress=False
    )
    assert isinstance(fit.posterior.family, SemiImplicit)
    assert fit.cost.steps == len(fit.history["loss"]) == 60
    assert fit.state is not None
    assert fit.diagnostics.answer == "a trained sampler"
    assert fit.diagnostics.training is not None
    assert fit.refined is not None


def test_a_bad_kind_of_answer_is_named():
    for bad in ("banana", 3, ["gaussian"]):
        with pytest.raises(
            ValueError, match="at_least must be one of 'gaussian', 'mixture', 'sampler', got"
        ):
            ksivi.fit(KEY, gaussian(), at_least=bad)


@pytest.mark.parametrize("refine", ["hmc", "importance"])
def test_draws_of_a_mixture_can_be_refined(refine, of_banana):
    fit = ksivi.fit(KEY, banana(), init=of_banana, refine=refine, progress=False)
    draws = fit.refined.posterior.sample(KEY, 2_000)
    assert_equal_moments(draws, exact_bananas(20_000), fit.refined.effective / 4)


def test_ctrl_c_in_the_checks_of_a_mixture_returns_it(monkeypatch):
    examine = _answers.examine

    def examine_gaussians(rng, evaluate, posterior, *more):
        if len(posterior.family.shares) > 1:
            raise KeyboardInterrupt
        return examine(rng, evaluate, posterior, *more)

    monkeypatch.setattr(_answers, "examine", examine_gaussians)
    fit = ksivi.fit(KEY, banana(), refine="hmc", progress=False)
    assert str(fit.status) == (
        "interrupted: stopped by the user; the draws were not checked; there are no corrected draws: "
        "the draws of the answer could not be checked"
    )
    assert not fit.trusted
    assert fit.refined is None
    assert number_of(fit) > 1
    assert fit.posterior.sample(KEY, 10).shape == (10, 2)
    assert [len(values) for values in fit.history.values()] == [0, 0]


def test_an_improper_posterior_is_not_trained(monkeypatch):
    """No better answer can remove the doubt."""
    monkeypatch.setattr(_answers, "new_families", None)
    flat = ksivi.Target(lambda x: -0.5 * x[0] ** 2 - 0.5 * jnp.log1p(x[1] ** 2), dim=2)
    fit = ksivi.fit(KEY, flat, progress=False)
    assert fit.status.kind == "not trusted"
    assert "the posterior may be improper" in str(fit.status)
    assert "as x[1] grows" in str(fit.status)
    assert fit.cost.steps == 0


def test_a_budget_that_ends_in_the_checks_says_so(monkeypatch):
    def late(rng, evaluate, *_):
        evaluate.deadline = 0.0
        raise OutOfTime

    monkeypatch.setattr(_answers, "examine", late)
    fit = ksivi.fit(KEY, banana(), budget_s=60, progress=False)
    assert fit.status.kind == "not trusted"
    assert "the draws were not checked" in str(fit.status)
    assert "60 s" in str(fit.status)
    assert fit.cost.steps == 0
    assert fit.posterior.sample(KEY, 10).shape == (10, 2)


def test_weights_polish_a_mixture_that_is_a_little_off():
    """A Gaussian beside a standard normal comes to it, for the price of its weighted draws."""
    evaluate = Evaluator(ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2))
    off = Mixture(np.ones(1), np.full((1, 2), 0.25), 1.1 * np.eye(2)[None])
    found = polished(np.random.default_rng(0), evaluate, off)
    assert evaluate.count <= 3 * 8_000
    draws, _ = found.draws(np.random.default_rng(1), 100_000)
    # About 7,000 effective draws made it.
    assert np.abs(draws.mean(axis=0)).max() < 4 / np.sqrt(7_000)
    assert np.abs(draws.std(axis=0) - 1).max() < 4 / np.sqrt(2 * 7_000)


def test_weights_that_say_nothing_leave_a_mixture_alone():
    evaluate = Evaluator(ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2))
    far = Mixture(np.ones(1), np.full((1, 2), 5.0), np.eye(2)[None])
    assert polished(np.random.default_rng(0), evaluate, far) is far
    assert evaluate.count == 8_000


def test_ctrl_c_while_the_first_mixture_is_fitted_returns_a_gaussian(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_answers, "polished", interrupted)
    fit = ksivi.fit(KEY, banana(), progress=False)
    assert fit.status.kind == "interrupted"
    assert not fit.trusted
    assert np.isfinite(fit.posterior.sample(KEY, 10)).all()
