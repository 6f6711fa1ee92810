"""What `to_arviz` adds on request: simulated groups, unconstrained draws, and attributes of the fit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.families import Empirical, GaussianMixture

pytest.importorskip("arviz", reason="ArviZ is not installed")
pytest.importorskip("numpyro", reason="NumPyro is not installed")
import arviz
import numpyro
import numpyro.distributions as dist

KEY = jax.random.key(0)
X = jnp.linspace(-1, 1, 20)
GROUPS = ("posterior_predictive", "prior", "prior_predictive")


def model(x, y=None):
    slope, noise = numpyro.sample("slope", dist.Normal(0, 3)), numpyro.sample("noise", _WIDTH)
    numpyro.deterministic("at_two", 2 * slope)
    numpyro.sample("y", dist.Normal(slope * x, noise), obs=y)


_WIDTH = dist.HalfNormal(2)


@pytest.fixture(scope="module")
def posterior():
    """noise = exp(−1 ± 0.1), slope = 2 ± 0.1."""
    family = GaussianMixture([1.0], jnp.array([[-1.0, 2.0]]), 0.1 * jnp.eye(2)[None])
    return ksivi.Posterior.of(family, ksivi.from_numpyro(model, X, 2 * X))


def values(data, group, name):
    """The draws of a group, without the chain that ArviZ 0.x wants."""
    found = data[group][name].to_numpy()
    return found[0] if arviz.__version__.startswith("0.") else found


def test_nothing_is_added_unless_it_is_wanted(posterior):
    data = posterior.to_arviz(KEY, 10)
    for group in (*GROUPS, "unconstrained_posterior"):
        assert group not in data


def test_simulated_data_belong_to_their_draws(posterior):
    data = posterior.to_arviz(KEY, 4_000, posterior_predictive=True)
    y, slope = values(data, "posterior_predictive", "y"), values(data, "posterior", "slope")
    noise = values(data, "posterior", "noise")
    assert y.shape == (4_000, 20)
    residuals = (y - slope[:, None] * np.asarray(X)) / noise[:, None]
    assert residuals.std() == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(slope, posterior.draws(KEY, 4_000)["slope"])


def test_the_prior_and_its_data_are_drawn_together(posterior):
    data = posterior.to_arviz(KEY, 4_000, prior=True, prior_predictive=True)
    slope, y = values(data, "prior", "slope"), values(data, "prior_predictive", "y")
    assert slope.std() == pytest.approx(3.0, abs=0.15)
    assert values(data, "prior", "noise").mean() == pytest.approx(2 * (2 / np.pi) ** 0.5, abs=0.1)
    assert y.shape == (4_000, 20)
    assert np.corrcoef(slope, y[:, -1])[0, 1] > 0.7
    only = posterior.to_arviz(KEY, 10, prior_predictive=True)
    assert "prior" not in only
    assert "prior_predictive" in only


def test_unconstrained_draws_are_those_of_the_posterior(posterior):
    data = posterior.to_arviz(KEY, 50, unconstrained=True)
    u = values(data, "unconstrained_posterior", "noise")
    np.testing.assert_allclose(np.exp(u), values(data, "posterior", "noise"), rtol=1e-5)
    x = np.asarray(posterior.sample(KEY, 50))
    np.testing.assert_allclose(u, x[:, 0], rtol=1e-6)


def test_the_attributes_say_how_the_draws_were_made(tmp_path):
    fit = ksivi.fit(KEY, ksivi.from_numpyro(model, X, 2 * X + 0.1), progress=False)
    data = fit.posterior.to_arviz(KEY, 20, unconstrained=True)
    found = data["posterior"].attrs
    assert found["inference_library"] == "ksivi"
    assert found["inference_library_version"] == ksivi.__version__
    assert "created_at" in found
    assert found["method"] == "ksivi.fit"
    assert found["answer"] == fit.diagnostics.answer
    assert found["status"] == str(fit.status)
    assert found["trusted"] == int(fit.trusted)
    assert found["log_evidence"] == pytest.approx(fit.diagnostics.log_evidence)
    assert found["sampling_time"] == fit.cost.seconds
    assert found["effective_sample_size"] == 20
    for name in ("num_steps", "num_rows", "refine"):  # nothing was trained, left out or corrected
        assert name not in found
    assert data["unconstrained_posterior"].attrs["inference_library"] == "ksivi"
    fit.posterior.save(tmp_path / "posterior")
    again = ksivi.load(tmp_path / "posterior").to_arviz(KEY, 20)
    assert "status" not in again["posterior"].attrs


def test_attributes_of_a_run_without_checks():
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.location_scale(2)
    fit = ksivi.train(KEY, target, family, ksivi.KSIVI(num_samples=4), num_steps=2)
    found = fit.posterior.to_arviz(KEY, 5)["posterior"].attrs
    assert (found["method"], found["trusted"], found["num_steps"]) == ("ksivi.train", 0, 2)
    assert found["status"].startswith("step limit")
    assert "log_evidence" not in found


def test_the_attributes_say_how_many_rows_were_used():
    known = ksivi.results.FitDiagnostics(num_rows=10, num_all_rows=25, rows_error=0.04)
    found = chains_of(np.zeros((5, 2)), known).posterior.attributes
    assert (found["num_rows"], found["num_all_rows"], found["rows_error"]) == (10, 25, 0.04)
    assert "log_evidence" not in found


def chains_of(states, diagnostics):
    """A fit with these stored draws."""
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=states.shape[1])
    posterior = ksivi.Posterior.of(Empirical(jnp.asarray(states, jnp.float32)), target)
    status, cost = ksivi.Status("converged", "by construction"), ksivi.Cost(0.0, 0, 0)
    return ksivi.Fit(posterior, status, True, diagnostics, {}, cost, None)


def autoregressive(rng, count, length, memory):
    x = rng.normal(size=(count, length))
    for i in range(1, length):
        x[:, i] = memory * x[:, i - 1] + np.sqrt(1 - memory**2) * x[:, i]
    return x


def test_stored_draws_are_worth_their_effective_number():
    """States of a slow chain, which ArviZ takes for independent: their order is random."""
    states = autoregressive(np.random.default_rng(0), 1, 4_000, 0.99).T
    known = ksivi.results.ChainDiagnostics(effective_sample_size=20.0)
    posterior = chains_of(states, known).posterior
    found = posterior.to_arviz(KEY, 4_000)["posterior"].attrs
    assert found["effective_sample_size"] == pytest.approx(20.0)
    assert posterior.to_arviz(KEY, 10)["posterior"].attrs["effective_sample_size"] < 10
    unknown = chains_of(states, ksivi.results.ParticleDiagnostics()).posterior
    assert "effective_sample_size" not in unknown.to_arviz(KEY, 10)["posterior"].attrs


@pytest.mark.parametrize("n", [20, 100, 1_000])
def test_the_mean_of_a_part_of_a_chain_varies_as_its_effective_number_says(n):
    rng = np.random.default_rng(1)
    states = autoregressive(rng, 2_000, 1_000, 0.9)
    exact = 1_000 * (1 - 0.9) / (1 + 0.9)
    known = ksivi.results.ChainDiagnostics(effective_sample_size=exact)
    effective = chains_of(states[:1].T, known).posterior.effective_size(n)
    means = np.array([rng.permutation(chain)[:n].mean() for chain in states])
    assert means.var() == pytest.approx(1 / effective, rel=4 * np.sqrt(2 / 2_000))


def test_a_compiled_function_of_a_posterior_knows_no_fit():
    """It is compiled once for all fits, and does not give the status of one fit to the next."""
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.location_scale(2)
    fits = [
        ksivi.train(KEY, target, family, ksivi.KSIVI(num_samples=4), num_steps=n) for n in (2, 3)
    ]
    traced = []

    @eqx.filter_jit
    def same(posterior):
        traced.append(posterior)
        return posterior

    for fit in fits:
        assert fit.posterior.attributes["status"] == str(fit.status)
        assert "status" not in same(fit.posterior).attributes
    assert len(traced) == 1


@pytest.mark.parametrize("group", GROUPS)
def test_groups_that_need_a_model_say_so(group, posterior, tmp_path):
    posterior.save(tmp_path / "posterior")
    loaded = ksivi.load(tmp_path / "posterior")
    with pytest.raises(ValueError, match=f"{group} needs the model: give a target that is made"):
        loaded.to_arviz(KEY, 5, **{group: True})
    with pytest.raises(ValueError, match=f"{group} must be True or False, got 1"):
        posterior.to_arviz(KEY, 5, **{group: 1})
    assert "observed_data" in loaded.to_arviz(KEY, 5, posterior.target)
