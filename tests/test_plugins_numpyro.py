"""A ksivi fit as a guide of NumPyro: the order of its parameters, its draws, its density, its errors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.families import Empirical, GaussianMixture, SemiImplicit

pytest.importorskip("numpyro", reason="NumPyro is not installed")
import numpyro
import numpyro.distributions as dist
from numpyro.infer import Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoContinuous

KEY = jax.random.key(0)
EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
# Means and standard deviations of posteriordb's 10,000 reference draws: mu, tau and theta.
MEANS = np.array([4.41, 3.60, 6.15, 4.94, 3.91, 4.80, 3.61, 4.05, 6.32, 4.88])
WIDTHS = np.array([3.31, 3.20, 5.62, 4.65, 5.28, 4.77, 4.61, 4.80, 5.00, 5.32])


def model(x, y=None):
    """Its sites are not in the order of their names, and have all shapes and two supports."""
    width = numpyro.sample("width", dist.HalfNormal(1))
    slopes = numpyro.sample("slopes", dist.Normal(0, 2).expand([2]).to_event(1))
    base = numpyro.sample("base", dist.Normal(0, 2))
    mean = numpyro.deterministic("mean", base + x @ slopes)
    numpyro.sample("y", dist.Normal(mean, width), obs=y)


X = jax.random.normal(jax.random.key(1), (30, 2))
Y = 1.0 + X @ jnp.array([2.0, -1.0]) + 0.5 * jax.random.normal(jax.random.key(2), (30,))


def fit_of(family, trusted=True):
    """A fit whose family is known, so that every number of the guide is."""
    posterior = ksivi.Posterior.of(family, ksivi.from_numpyro(model, X, Y))
    cost, history = ksivi.Cost(0.0, 0, 0), {"step": np.zeros(0, int), "loss": np.zeros(0)}
    diagnostics = ksivi.results.TrainDiagnostics()
    status = ksivi.Status("step limit", "made by hand")
    return ksivi.Fit(posterior, status, trusted, diagnostics, history, cost, None)


# base, slopes and log width, as ksivi orders them: by name.
CENTRE = jnp.array([1.0, 2.0, -1.0, -0.7])
ROOT = jnp.diag(jnp.array([0.1, 0.1, 0.1, 0.13])).at[2, 0].set(0.05)
GAUSSIAN = GaussianMixture([1.0], CENTRE[None], ROOT[None])


def test_draws_and_deterministic_sites_go_through_numpyro():
    guide = ksivi.plugins.numpyro_guide(model, fit_of(GAUSSIAN))
    assert isinstance(guide, AutoContinuous)
    draws = guide.sample_posterior(KEY, guide.params, sample_shape=(4_000,))
    assert draws["slopes"].shape == (4_000, 2)
    np.testing.assert_allclose(draws["slopes"].mean(axis=0), [2.0, -1.0], atol=0.02)
    np.testing.assert_allclose(draws["base"].mean(), 1.0, atol=0.02)
    np.testing.assert_allclose(jnp.log(draws["width"]).mean(), -0.7, atol=0.02)
    np.testing.assert_allclose(
        draws["mean"], draws["base"][:, None] + draws["slopes"] @ X.T, rtol=1e-4, atol=1e-4
    )
    assert guide.sample_posterior(KEY, guide.params, sample_shape=(2, 3))["base"].shape == (2, 3)
    assert guide.sample_posterior(KEY, guide.params)["slopes"].shape == (2,)


def test_predictive_takes_the_guide_and_its_parameters():
    guide = ksivi.plugins.numpyro_guide(model, fit_of(GAUSSIAN))
    moved = {"auto_family.means": guide.params["auto_family.means"].at[:, 0].add(5.0)}
    for params, base in ((guide.params, 1.0), (guide.params | moved, 6.0)):
        again = Predictive(model, guide=guide, params=params, num_samples=500)(KEY, X)
        assert again["y"].shape == (500, 30)
        lines = base + X @ jnp.array([2.0, -1.0])
        np.testing.assert_allclose(again["mean"].mean(axis=0), lines, atol=0.05)
        sites = Predictive(guide, params=params, num_samples=500)(KEY, X)
        np.testing.assert_allclose(sites["base"].mean(), base, atol=0.05)


def test_medians_and_quantiles_are_on_the_models_scale():
    guide = ksivi.plugins.numpyro_guide(model, fit_of(GAUSSIAN))
    np.testing.assert_allclose(guide.median(guide.params)["width"], jnp.exp(-0.7), rtol=0.01)
    found = guide.quantiles(guide.params, [0.05, 0.95])
    np.testing.assert_allclose(found["base"], 1.0 + 0.1 * np.array([-1.645, 1.645]), atol=0.01)
    np.testing.assert_allclose(found["slopes"][:, 0], 2.0 + 0.1645 * np.array([-1, 1]), atol=0.01)


def test_numpyros_bound_is_that_of_ksivi():
    """NumPyro evaluates the density of the guide, and the model at its draws."""
    fit = fit_of(GAUSSIAN)
    guide = ksivi.plugins.numpyro_guide(model, fit)
    loss = Trace_ELBO(num_particles=2_000).loss(KEY, guide.params, model, guide, X, Y)
    target, posterior = fit.posterior.target, fit.posterior
    x = posterior.sample(jax.random.key(3), 2_000)
    log_q = posterior.log_prob(KEY, x)
    bound = jax.vmap(target.log_density)(x) - log_q
    assert float(-loss) == pytest.approx(float(bound.mean()), abs=0.2)


def test_a_semi_implicit_family_in_whitened_coordinates_is_a_guide_too():
    family = SemiImplicit.mlp(KEY, 4, 3, hidden=(8,))
    fit = fit_of(family)
    target = fit.posterior.target.whitened(CENTRE, ROOT)
    posterior = ksivi.Posterior.of(family, target)
    fit = ksivi.Fit(posterior, *[getattr(fit, name) for name in list(fit.__annotations__)[1:]])
    guide = ksivi.plugins.numpyro_guide(model, fit, prefix="mine")
    assert {name.split(".")[0] for name in guide.params} == {"mine_family", "mine_coordinates"}
    draws = guide.sample_posterior(KEY, guide.params, sample_shape=(20_000,))
    true = posterior.draws(jax.random.key(5), 20_000)
    for name, values in true.items():
        np.testing.assert_allclose(draws[name].mean(0), values.mean(0), atol=0.02)
        np.testing.assert_allclose(draws[name].std(0), values.std(0), rtol=0.05)


def test_stored_draws_are_a_guide_too():
    points = CENTRE[None] + 0.1 * jax.random.normal(KEY, (500, 4))
    guide = ksivi.plugins.numpyro_guide(model, fit_of(Empirical(points)))
    again = Predictive(model, guide=guide, params=guide.params, num_samples=200)(KEY, X)
    assert np.isin(
        np.round(again["mean"][:, 0], 3), np.round(points[:, 0] + points[:, 1:3] @ X[0], 3)
    ).all()
    with pytest.raises(ValueError, match=r"fit must be of this model, whose parameters are \['v'"):
        ksivi.plugins.numpyro_guide(lambda x, y: funnel(), guide.ksivi_fit)


def funnel():
    v = numpyro.sample("v", dist.Normal(0, 2))
    numpyro.sample("x", dist.Normal(0, jnp.exp(v)).expand([3]))


def test_the_guide_of_a_fit_that_is_not_trusted_warns():
    """Also if its corrected draws are trusted: a guide has the draws of the fit."""
    fit = fit_of(GAUSSIAN, trusted=False)
    corrected = dataclasses.replace(fit, refined=fit_of(GAUSSIAN))
    for one in (fit, corrected):
        words = r"made by hand. print\(guide.ksivi_fit.explain\(\)\) says what to do"
        with pytest.warns(UserWarning, match=words) as seen:
            ksivi.plugins.numpyro_guide(model, one)
        assert seen[0].filename == __file__


def test_a_fit_in_one_line_warns_if_it_is_not_trusted():
    """A funnel is more than a few steps of a tiny network can learn."""
    recipe = ksivi.Recipe(num_runs=1, num_samples=4, num_mixing=4, num_pretraining=0, hidden=(2,))
    options = {"num_steps": 5, "recipe": recipe, "progress": False}
    guide = ksivi.plugins.numpyro_guide(funnel, **options)
    with pytest.warns(UserWarning, match="ksivi does not trust these draws. not trusted: ") as seen:
        params = guide.fit(KEY)
    assert seen[0].filename == __file__
    assert params is guide.params
    assert not guide.ksivi_fit.trusted


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: ksivi.plugins.numpyro_guide(3), "model must be a function, got int"),
        (lambda: ksivi.plugins.numpyro_guide(model, 3), "fit must be a ksivi.Fit of a target made"),
        (lambda: ksivi.plugins.numpyro_guide(model, prefix=3), "prefix must be text, got 3"),
        (lambda: ksivi.plugins.numpyro_guide(model, steps=3), "steps must be an option of ksivi.f"),
        (lambda: ksivi.plugins.numpyro_guide(model)(X), "guide must be fitted first"),
        (lambda: ksivi.plugins.numpyro_guide(model).fit(3, X), "key must be a JAX random key"),
    ],
)
def test_bad_arguments_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


def schools(errors, effects=None):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effects", dist.Normal(theta, errors), obs=effects)


@pytest.mark.slow
def test_centred_eight_schools_in_one_line():
    guide = ksivi.plugins.numpyro_guide(schools, progress=False)
    params = guide.fit(KEY, ERRORS, EFFECTS)
    draws = Predictive(guide, params=params, num_samples=20_000)(KEY, ERRORS)
    found = np.concatenate([draws["mu"][:, None], draws["tau"][:, None], draws["theta"]], axis=1)
    assert (np.abs(found.mean(axis=0) - MEANS) < 0.1 * WIDTHS).all()
