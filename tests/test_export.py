"""Posteriors as ArviZ data: the same draws, with the model's log likelihood and data."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import ksivi
from ksivi.families import Empirical

arviz = pytest.importorskip("arviz", reason="ArviZ is not installed")
IS_BEFORE_1 = arviz.__version__.startswith("0.")
KEY = jax.random.key(0)
X = np.linspace(-1, 1, 12)
Y = 0.5 + 2 * X + 0.3 * np.random.default_rng(0).normal(size=12)


def regression(x, y=None):
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    mean = numpyro.deterministic("mean", intercept + slope * x)
    numpyro.factor("nothing", 0.0 * slope)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def trained():
    """A sampler near the posterior, made by hand, because these tests are not about the fit."""
    target = ksivi.from_numpyro(regression, X, y=Y)
    loc = jnp.array([0.5, np.log(0.3), 2.0])
    family = ksivi.SemiImplicit.location_scale(3, log_var=2 * jnp.log(0.1))
    return target, ksivi.Posterior.of(family, target.whitened(loc, jnp.ones(3)))


def drawn(values):
    """One row per draw. ArviZ before version 1 adds a chain dimension."""
    values = np.asarray(values)
    return values[0] if IS_BEFORE_1 else values


def test_a_model_is_known_to_arviz():
    _, posterior = trained()
    found = posterior.to_arviz(KEY, 400)
    draws = {name: np.asarray(values) for name, values in posterior.draws(KEY, 400).items()}
    kept = {name: drawn(found.posterior[name]) for name in found.posterior.data_vars}
    assert set(kept) == {"intercept", "slope", "noise", "mean"}
    for name, values in draws.items():
        np.testing.assert_array_equal(kept[name], values)
    mean = draws["intercept"][:, None] + draws["slope"][:, None] * X
    np.testing.assert_allclose(kept["mean"], mean, rtol=1e-5, atol=1e-6)
    pointwise = stats.norm.logpdf(
        Y, np.asarray(mean, float), np.asarray(draws["noise"], float)[:, None]
    )
    np.testing.assert_allclose(
        np.asarray(found.log_likelihood["y"])[0], pointwise, rtol=2e-3, atol=2e-3
    )
    np.testing.assert_allclose(found.observed_data["y"], Y, rtol=1e-6)
    assert set(found.log_likelihood.data_vars) == {"y"}


def test_draws_have_one_dimension_where_arviz_lets_them():
    dims = trained()[1].to_arviz(KEY, 20).posterior["slope"].dims
    assert dims == (("chain", "draw") if IS_BEFORE_1 else ("sample",))


def test_densities_are_those_of_the_draws():
    target, posterior = trained()
    found = posterior.to_arviz(KEY, 250).sample_stats
    x = posterior.sample(KEY, 250)
    lp = jax.vmap(target.log_density)(x)
    log_q = stats.norm.logpdf(np.asarray(x, float), [0.5, np.log(0.3), 2.0], 0.1).sum(axis=1)
    np.testing.assert_allclose(drawn(found["lp"]), lp, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(drawn(found["log_q"]), log_q, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(drawn(found["log_weight"]), lp - log_q, rtol=1e-3, atol=1e-3)


def test_log_q_counts_the_z_that_made_a_draw():
    """If one z is far from all others, only its own term counts: log q(x|z) − log(K + 1)."""
    family = ksivi.SemiImplicit.mlp(KEY, dim=2, mixing_dim=2, hidden=(8,), log_var=-19.0)
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    found = ksivi.Posterior.of(family, target).to_arviz(KEY, 50).sample_stats["log_q"]
    highest = 19.0 - np.log(2 * np.pi) - np.log(1_001)
    assert np.all(np.asarray(found) > highest - 10)


def test_summaries_and_loo_work():
    _, posterior = trained()
    found = posterior.to_arviz(KEY, 2_000)
    dims = {} if IS_BEFORE_1 else {"sample_dims": "sample"}
    summary = arviz.summary(
        found, kind="stats", var_names=["intercept", "slope", "noise"], round_to=4, **dims
    )
    assert abs(float(summary.loc["slope", "mean"]) - 2) < 0.02
    by_hand = np.asarray(found.log_likelihood["y"])[0]
    plain = np.sum(-np.log(np.mean(np.exp(-by_hand.astype(float)), axis=0)))
    loo = arviz.loo(found, reff=1.0)
    assert getattr(loo, "elpd_loo" if IS_BEFORE_1 else "elpd") == pytest.approx(plain, abs=0.3)


def test_a_posterior_that_was_loaded_says_what_it_knows(tmp_path):
    target, posterior = trained()
    posterior.save(tmp_path / "p.safetensors")
    loaded = ksivi.load(tmp_path / "p.safetensors")
    bare, whole = loaded.to_arviz(KEY, 20), loaded.to_arviz(KEY, 20, target)
    assert set(bare.sample_stats.data_vars) == {"log_q"}
    assert not hasattr(bare, "log_likelihood")
    assert {"lp", "log_weight"} <= set(whole.sample_stats.data_vars)
    np.testing.assert_array_equal(bare.posterior["noise"], whole.posterior["noise"])
    advice = r"target\.model\.predictive\(key, posterior\.draws\(key, n\)\)"
    with pytest.raises(ValueError, match=f"predictive needs the model, .* {advice}"):
        loaded.predictive(KEY, 3)
    assert target.model.predictive(KEY, loaded.draws(KEY, 3))["y"].shape[0] == 3


def test_another_process_without_the_model_draws_the_same(tmp_path):
    _, posterior = trained()
    posterior.save(tmp_path / "p.safetensors")
    code = (
        "import sys, jax, numpy as np, ksivi\n"
        f"draws = ksivi.load({str(tmp_path / 'p.safetensors')!r}).draws(jax.random.key(5), 7)\n"
        f"np.savez({str(tmp_path / 'draws.npz')!r}, **draws)\n"
        "assert 'test_export' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    theirs = np.load(tmp_path / "draws.npz")
    for name, values in posterior.draws(jax.random.key(5), 7).items():
        np.testing.assert_array_equal(theirs[name], values)


def test_stored_draws_have_no_density_of_their_own():
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2, names=["a", "b"])
    found = ksivi.Posterior.of(Empirical(jnp.ones((30, 2))), target).to_arviz(KEY, 30)
    assert set(found.sample_stats.data_vars) == {"lp"}
    assert set(found.posterior.data_vars) == {"a", "b"}


def test_new_data_follow_the_model():
    _, posterior = trained()
    new = posterior.predictive(KEY, 3_000)["y"]
    assert new.shape == (3_000, 12)
    assert not np.allclose(new[0], Y)
    spread = np.sqrt(0.3**2 + 0.1**2 * (1 + X**2))
    np.testing.assert_allclose(np.std(new, axis=0), spread, rtol=0.1)
    elsewhere = posterior.predictive(KEY, 50, np.array([10.0]))["y"]
    assert abs(float(np.mean(elsewhere)) - 20.5) < 1
