"""Draws from the prior of a NumPyro model, with the data that they simulate."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import ksivi

KEY, COUNT = jax.random.key(0), 4_000
X = jnp.linspace(0, 1, 5)


def curve(x, y):
    """Without a plate: the distribution of y may have a smaller shape than the data."""
    slope = numpyro.sample("slope", dist.Normal(1, 2))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    numpyro.deterministic("end", slope * x[-1])
    numpyro.sample("y", dist.Normal(slope * x, noise), obs=y)
    numpyro.sample("count", dist.Poisson(3.0), obs=jnp.array([1, 2]))


def drawn(n=COUNT):
    return ksivi.from_numpyro(curve, X, y=jnp.zeros(5)).prior_predictive(KEY, n)


def test_parameters_come_from_the_prior():
    found = drawn()
    assert set(found) == {"slope", "noise", "end", "y", "count"}
    assert stats.kstest(found["slope"], stats.norm(1, 2).cdf).pvalue > 1e-3
    assert stats.kstest(found["noise"], stats.halfnorm.cdf).pvalue > 1e-3
    np.testing.assert_allclose(found["end"], found["slope"], rtol=1e-6)


def test_data_come_from_the_parameters():
    """The observed values, all zero, play no part."""
    found = {name: np.asarray(values, np.float64) for name, values in drawn().items()}
    assert found["y"].shape == (COUNT, 5)
    z = (found["y"] - found["slope"][:, None] * np.asarray(X)) / found["noise"][:, None]
    assert stats.kstest(z.ravel(), stats.norm.cdf).pvalue > 1e-3
    error = np.sqrt(3 / (2 * COUNT))
    assert found["count"].shape == (COUNT, 2)
    assert abs(found["count"].mean() - 3) < 4 * error
    # The data of one draw share its parameters, and are otherwise independent.
    assert abs(np.corrcoef(z[:, 0], z[:, 1])[0, 1]) < 4 / np.sqrt(COUNT)
    assert np.corrcoef(found["y"][:, 3], found["y"][:, 4])[0, 1] > 0.5


def test_one_draw_and_the_same_key():
    assert {name: value.shape for name, value in drawn(1).items()} == {
        "slope": (1,),
        "noise": (1,),
        "end": (1,),
        "y": (1, 5),
        "count": (1, 2),
    }
    np.testing.assert_array_equal(drawn(3)["y"], drawn(3)["y"])


def test_a_subsampled_plate_has_all_of_its_rows():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y), subsample_size=3) as rows:
            numpyro.sample("y", dist.Normal(mean, 1), obs=y[rows])

    target = ksivi.from_numpyro(model, jnp.zeros(12))
    assert target.prior_predictive(KEY, 7)["y"].shape == (7, 12)


def test_vectors_keep_their_shapes():
    def model(y):
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("rows", 4):
            numpyro.sample("y", dist.Normal(shares[None], 0.1).to_event(1), obs=y)

    with jax.numpy_rank_promotion("allow"):  # NumPyro's expanded distributions rely on it
        found = ksivi.from_numpyro(model, jnp.zeros((4, 3))).prior_predictive(KEY, 500)
    assert found["shares"].shape == (500, 3)
    assert found["y"].shape == (500, 4, 3)
    z = (found["y"] - found["shares"][:, None]) / 0.1
    assert stats.kstest(np.asarray(z).ravel(), stats.norm.cdf).pvalue > 1e-3


def test_posterior_predictions_have_the_shape_of_the_data():
    target = ksivi.from_numpyro(curve, X, y=jnp.zeros(5))
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(2), target)
    found = posterior.predictive(KEY, 9)
    assert {name: value.shape for name, value in found.items()} == {"y": (9, 5), "count": (9, 2)}


def test_the_model_tells_parameters_from_data():
    """What plug-ins build on."""
    parameters, data = ksivi.from_numpyro(curve, X, y=jnp.zeros(5)).model.prior_predictive(KEY, 3)
    assert set(parameters) == {"slope", "noise", "end"}
    assert set(data) == {"y", "count"}


def test_an_improper_prior_is_refused_by_its_name():
    def model(y):
        mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
        other = numpyro.sample("other", dist.ImproperUniform(dist.constraints.real, (2,), ()))
        numpyro.sample("y", dist.Normal(mean + other.sum(), 1), obs=y)

    target = ksivi.from_numpyro(model, jnp.zeros(3))
    with pytest.raises(ValueError, match="the prior of 'mean', 'other' is improper"):
        target.prior_predictive(KEY, 3)


def test_a_factor_is_left_out_with_a_warning():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.factor("penalty", -(mean**4))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    target = ksivi.from_numpyro(model, jnp.zeros(3))
    with pytest.warns(UserWarning, match="the factor 'penalty' is part of the log density") as said:
        found = target.prior_predictive(KEY, COUNT)
    assert said[0].filename == __file__
    assert set(found) == {"mean", "y"}
    assert stats.kstest(found["mean"], stats.norm.cdf).pvalue > 1e-3


def test_bad_arguments_are_named():
    target = ksivi.from_numpyro(curve, X, y=jnp.zeros(5))
    with pytest.raises(ValueError, match="n must be a whole number of at least 1, got 0"):
        target.prior_predictive(KEY, 0)
    with pytest.raises(ValueError, match="key must be a JAX random key"):
        target.prior_predictive(0, 3)
    plain = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    words = "prior_predictive needs the prior of a probabilistic program, .* ksivi.from_numpyro or"
    with pytest.raises(ValueError, match=words):
        plain.prior_predictive(KEY, 3)
