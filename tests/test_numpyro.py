"""The door for NumPyro models: names, shapes, supports, densities, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import ksivi
from ksivi.families import Empirical


def regression(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([x.shape[1]]))
    noise = numpyro.sample("noise", dist.HalfNormal(1.5))
    share = numpyro.sample("share", dist.Uniform(-1, 3))
    numpyro.sample("y", dist.Normal(x @ slope + share, noise), obs=y)


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 2)), rng.normal(size=7)


def test_the_density_is_the_models_with_the_jacobian():
    x, y = data()
    target = ksivi.from_numpyro(regression, x, y=y)
    assert target.layout == (("noise", ()), ("share", ()), ("slope", (2,)))
    u = np.array([0.3, -0.4, 0.5, -1.2])
    noise, sigmoid, slope = np.exp(u[0]), 1 / (1 + np.exp(-u[1])), u[2:]
    share = -1 + 4 * sigmoid
    expected = stats.halfnorm.logpdf(noise, scale=1.5) + u[0] + stats.norm.logpdf(slope, 0, 2).sum()
    expected += np.log(1 / 4) + np.log(4 * sigmoid * (1 - sigmoid))
    expected += stats.norm.logpdf(y, x @ slope + share, noise).sum()
    np.testing.assert_allclose(target.log_density(jnp.asarray(u, jnp.float32)), expected, rtol=1e-5)


def test_draws_are_on_the_models_scale_and_survive_saving(tmp_path):
    x, y = data()
    target = ksivi.from_numpyro(regression, x, y=y)
    points = jax.random.normal(jax.random.key(0), (50, 4))
    posterior = ksivi.Posterior.of(Empirical(points), target)
    posterior.save(tmp_path / "p.safetensors")
    for one in (posterior, ksivi.load(tmp_path / "p.safetensors")):
        draws = one.draws(jax.random.key(1), 50)
        assert draws["slope"].shape == (50, 2)
        np.testing.assert_allclose(np.sort(draws["noise"]), np.sort(np.exp(points[:, 0])), rtol=1e-5)
        assert bool(jnp.all((draws["share"] > -1) & (draws["share"] < 3)))


def test_new_data_of_the_same_shapes_does_not_trace_again():
    traces = []

    def model(y):
        traces.append(1)
        numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0, 1)), 1), obs=y)

    evaluate = eqx.filter_jit(lambda target, x: target.log_density(x))
    targets = [ksivi.from_numpyro(model, np.full(3, value)) for value in (0.0, 1.0)]
    values = [evaluate(targets[0], jnp.zeros(1))]
    count = len(traces)
    values.append(evaluate(targets[1], jnp.zeros(1)))
    assert len(traces) == count
    np.testing.assert_allclose(values[0] - values[1], 1.5, rtol=1e-5)


def special():
    numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("root", dist.LKJCholesky(3, 2.0))
    numpyro.sample("flat", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    numpyro.sample("rates", dist.Gamma(2, 1).expand([2, 2]))
    numpyro.factor("finite", -0.5)


def test_simplices_correlations_and_flat_priors():
    target = ksivi.from_numpyro(special)
    assert dict(target.layout) == {"weights": (2,), "root": (3,), "flat": (2,), "rates": (2, 2)}
    posterior = ksivi.Posterior.of(Empirical(jax.random.normal(jax.random.key(0), (20, target.dim))), target)
    draws = posterior.draws(jax.random.key(1), 20)
    np.testing.assert_allclose(draws["weights"].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose((draws["root"] ** 2).sum(axis=2), 1, rtol=1e-5)
    assert draws["rates"].shape == (20, 2, 2)
    assert bool(jnp.all(draws["rates"] > 0))


def discrete():
    numpyro.sample("count", dist.Poisson(2.0))


def subsampled():
    with numpyro.plate("rows", 10, subsample_size=3):
        numpyro.sample("x", dist.Normal(0, 1))


def dependent():
    numpyro.sample("below", dist.Uniform(0, numpyro.sample("top", dist.HalfNormal(1.0))))


def observed():
    numpyro.sample("y", dist.Normal(0, 1), obs=1.0)


def unlearned():
    numpyro.param("w", 1.0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (discrete, "'count' is discrete"),
        (subsampled, "'rows' is subsampled"),
        (dependent, "'below' has a support that depends"),
        (observed, "parameter to infer"),
        (unlearned, "'w' has no prior"),
        ("model", "model must be a function"),
    ],
)
def test_what_cannot_be_approximated_is_refused_with_the_reason(model, words):
    with pytest.raises(ValueError, match=words):
        ksivi.from_numpyro(model)
