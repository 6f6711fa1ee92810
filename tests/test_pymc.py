"""Targets from PyMC models: log density, names, supports and the model's other quantities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ksivi
from ksivi.targets import split

pymc = pytest.importorskip("pymc", reason="PyMC is not installed")
# PyTensor's, of a machine without BLAS.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
KEY = jax.random.key(0)
X = np.linspace(-1, 1, 12)
Y = 0.5 + 2 * X + 0.3 * np.random.default_rng(0).normal(size=12)


def many_supports():
    with pymc.Model() as model:
        slope = pymc.Normal("slope", 0, 2, shape=2)
        noise = pymc.HalfNormal("noise", 1)
        shares = pymc.Dirichlet("shares", np.array([2.0, 1.0, 3.0]))
        between = pymc.Uniform("between", -1, 3)
        chance = pymc.Beta("chance", 2, 3)
        pymc.Deterministic("total", slope.sum() + chance)
        pymc.Normal("y", slope[0] + slope[1] * X + between * shares[0], noise, observed=Y)
    return model


def regression():
    with pymc.Model() as model:
        intercept, slope = pymc.Normal("intercept", 0, 2), pymc.Normal("slope", 0, 2)
        pymc.Normal("y", intercept + slope * X, pymc.HalfNormal("noise", 1), observed=Y)
    return model


def test_the_density_is_pymcs_own():
    model = many_supports()
    target = ksivi.from_pymc(model)
    theirs = model.compile_logp()
    names = {variable.name: model.rvs_to_values[variable].name for variable in model.free_RVs}
    for key in jax.random.split(KEY, 3):
        x = 0.7 * jax.random.normal(key, (target.dim,))
        parts = split(x, [shape for _, shape in target.layout])
        point = {
            names[name]: np.asarray(u, np.float64)
            for (name, _), u in zip(target.layout, parts, strict=True)
        }
        np.testing.assert_allclose(target.log_density(x), theirs(point), rtol=1e-4)


def test_it_leaves_precision_as_it_was():
    before = jax.config.jax_enable_x64
    target = ksivi.from_pymc(regression())
    assert jax.config.jax_enable_x64 == before
    assert target.score(jnp.zeros(3)).dtype == jnp.zeros(()).dtype


def test_draws_are_where_parameters_live_and_the_model_is_known_to_arviz(tmp_path):
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    target = ksivi.from_pymc(many_supports())
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(target.dim), target)
    draws = posterior.draws(KEY, 50)
    assert draws["shares"].shape == (50, 3)
    np.testing.assert_allclose(draws["shares"].sum(axis=1), 1.0, rtol=1e-5)
    assert bool(jnp.all((draws["between"] > -1) & (draws["between"] < 3) & (draws["noise"] > 0)))
    found = posterior.to_arviz(KEY, 50)
    total = np.asarray(draws["slope"]).sum(axis=1) + np.asarray(draws["chance"])
    np.testing.assert_allclose(
        found.posterior["total"].to_numpy().ravel(), total, rtol=1e-4, atol=1e-5
    )
    d = {name: np.asarray(values, np.float64) for name, values in draws.items()}
    mean = d["slope"][:, :1] + d["slope"][:, 1:] * X + (d["between"] * d["shares"][:, 0])[:, None]
    pointwise = stats.norm.logpdf(Y, mean, d["noise"][:, None])
    np.testing.assert_allclose(found.log_likelihood["y"][0], pointwise, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.observed_data["y"], Y)
    assert posterior.predictive(KEY, 20)["y"].shape == (20, 12)
    posterior.save(tmp_path / "p.safetensors")
    again = ksivi.load(tmp_path / "p.safetensors").draws(KEY, 50)
    np.testing.assert_array_equal(again["shares"], draws["shares"])


def test_prior_draws_have_the_data_that_they_simulate():
    target, count = ksivi.from_pymc(many_supports()), 2_000
    found = {
        name: np.asarray(x, np.float64) for name, x in target.prior_predictive(KEY, count).items()
    }
    assert set(found) == {"slope", "noise", "shares", "between", "chance", "total", "y"}
    assert found["y"].shape == (count, 12)
    assert stats.kstest(found["slope"].ravel(), stats.norm(0, 2).cdf).pvalue > 1e-3
    assert stats.kstest(found["between"], stats.uniform(-1, 4).cdf).pvalue > 1e-3
    assert stats.kstest(found["chance"], stats.beta(2, 3).cdf).pvalue > 1e-3
    total = found["slope"].sum(axis=1) + found["chance"]
    np.testing.assert_allclose(found["total"], total, rtol=1e-4, atol=1e-4)
    mean = found["slope"][:, :1] + found["slope"][:, 1:] * X
    mean += (found["between"] * found["shares"][:, 0])[:, None]
    z = (found["y"] - mean) / found["noise"][:, None]
    assert stats.kstest(z.ravel(), stats.norm.cdf).pvalue > 1e-3
    assert set(target.model.prior_predictive(KEY, 2)[1]) == {"y"}


def test_a_prior_that_cannot_be_drawn_from_is_named():
    with pymc.Model() as flat:
        pymc.Normal("y", pymc.Flat("mean"), pymc.HalfFlat("noise"), observed=Y)
    with pytest.raises(ValueError, match="the prior of 'mean', 'noise' is improper"):
        ksivi.from_pymc(flat).prior_predictive(KEY, 3)
    assert ksivi.from_pymc(flat).model.improper() == ("mean", "noise")  # so it has no evidence
    assert ksivi.from_pymc(many_supports()).model.improper() == ()
    with pymc.Model() as weighted:
        a = pymc.Normal("a")
        pymc.Potential("weight", -(a**4))
        pymc.Normal("y", a, 1, observed=Y)
    with pytest.warns(UserWarning, match="Potentials on other parameters"):
        ksivi.from_pymc(weighted).prior_predictive(KEY, 3)


def test_posterior_calibration_needs_the_own_target_of_both_data_sets():
    target = ksivi.from_pymc(regression())
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(target.dim), target)
    with pytest.raises(ValueError, match="must be a NumPyro model to be given a second data set"):
        ksivi.calibration.simulate_around(posterior)


def on_intervals():
    """Bounds that are constants, and bounds that PyMC computes."""
    between = pymc.distributions.transforms.Interval(0, 1)
    above = pymc.distributions.transforms.Interval(-1.5, None)
    with pymc.Model() as model:
        pymc.Normal("x", 0, 1, transform=between, default_transform=None)
        pymc.Normal("above", 0, 1, transform=above, default_transform=None)
        pymc.LKJCorr("correlation", n=2, eta=2, return_matrix=False)
    return model


def test_intervals_with_constant_bounds_are_supports():
    target = ksivi.from_pymc(on_intervals())
    kinds = {
        one: support.kind for (one, _), support in zip(target.layout, target.supports, strict=True)
    }
    assert kinds == {"x": "interval", "above": "greater_than", "correlation": "interval"}
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(3), target)
    draws = posterior.draws(KEY, 200)
    assert bool(jnp.all((draws["x"] > 0) & (draws["x"] < 1) & (draws["above"] > -1.5)))
    assert bool(jnp.all(jnp.abs(draws["correlation"]) < 1))


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        (
            lambda: pymc.LKJCholeskyCov("v", n=2, eta=2, sd_dist=pymc.HalfNormal.dist(1)),
            "'cholesky-cov-packed', .* Instead, write the covariance as standard deviations times",
        ),
        (lambda: pymc.ZeroSumNormal("v", shape=3), r"'zerosum', .* scipy\.linalg\.helmert"),
        (lambda: pymc.VonMises("v", 0, 1), "'circular', .* arctan2.* pymc.Potential"),
        (
            lambda: pymc.Normal("v", shape=2, initval=[1, 2], transform=chained()),
            "'chain', .* give the variable one of the transforms",
        ),
        (
            lambda: pymc.HalfNormal(
                "v", default_transform=pymc.distributions.transforms.log_exp_m1
            ),
            "'log_exp_m1', .* Instead, write it as a function of parameters that are real",
        ),
    ],
    ids=["covariance", "zero sum", "angle", "chain", "any other"],
)
def test_a_transform_that_is_not_supported_says_what_to_write(variable, words):
    with pymc.Model() as model:
        variable()
    with pytest.raises(ValueError, match=f"'v' has the transform {words}") as raised:
        ksivi.from_pymc(model)
    assert "ksivi.Target.from_pytree(log_density, example, supports=...)" in str(raised.value)


def chained():
    of = pymc.distributions.transforms
    return of.Chain([of.log, of.ordered])


def test_the_zero_sum_that_a_message_advises_has_pymcs_density():
    from scipy.linalg import helmert

    z = np.array([0.3, -1.0, 0.7])
    x = helmert(4).T @ z
    assert abs(x.sum()) < 1e-9
    exact = pymc.logp(pymc.ZeroSumNormal.dist(2.0, shape=4), x).eval()
    assert stats.norm(0, 2.0).logpdf(z).sum() == pytest.approx(float(exact), rel=1e-5)


def test_what_cannot_be_is_refused():
    with pymc.Model() as discrete:
        pymc.Poisson("count", 3)
    with pytest.raises(ValueError, match=r"'count' is discrete \(Poisson\), .* pymc.Mixture"):
        ksivi.from_pymc(discrete)
    with pymc.Model() as moving:
        pymc.Uniform("inside", 0, pymc.HalfNormal("edge", 1))
    with pytest.raises(ValueError, match="'inside' has a support that depends on other parameters"):
        ksivi.from_pymc(moving)
    with pytest.raises(ValueError, match=r"model must be a pymc\.Model"):
        ksivi.from_pymc(lambda: None)


def test_the_variable_and_the_row_of_impossible_data_are_named():
    with pymc.Model() as negative:
        pymc.Poisson("y", pymc.Gamma("rate", 1, 1), observed=np.array([1, -2, 3, -1]))
    words = (
        r"'y' \(Poisson\) is -inf in rows 1 and 3 of 4, counted from 0, where the data are -2, -1"
    )
    with pytest.raises(ValueError, match=words):
        ksivi.from_pymc(negative)
    with pymc.Model() as missing:
        pymc.Normal("y", pymc.Normal("a") * np.array([1, np.nan, 2]), observed=np.ones(3))
    with pytest.raises(ValueError, match=r"'y' \(Normal\) is nan in row 1 of 3"):
        ksivi.from_pymc(missing)
    with pymc.Model() as impossible:
        pymc.Potential("weight", pymc.math.log(pymc.Normal("a") - 1))
    with pytest.raises(ValueError, match="the log density of 'weight' is nan"):
        ksivi.from_pymc(impossible)
    with pymc.Model() as uneven:
        pymc.Normal("y", pymc.Normal("a", shape=3), observed=np.ones(4))
    with pytest.raises(ValueError, match="model failed: ValueError: "):
        ksivi.from_pymc(uneven)


@pytest.mark.slow
def test_a_fit_agrees_with_pymcs_own_sampler():
    model = regression()
    fit = ksivi.fit(KEY, ksivi.from_pymc(model), progress=False)
    assert fit.trusted, fit.status
    with model:
        truth = pymc.sample(
            2_000, tune=1_000, chains=2, cores=1, random_seed=0, progressbar=False
        ).posterior
    for name, values in fit.posterior.draws(KEY, 20_000).items():
        true = truth[name].to_numpy().ravel()
        assert abs(float(values.mean()) - true.mean()) < 0.1 * true.std()
        assert float(values.std()) == pytest.approx(true.std(), rel=0.1)


def by_group(names=True):
    """Effects of groups with named dimensions, of which the data say which one a row belongs to."""
    coords = {"group": ["a", "b", "c"]} if names else {}
    with pymc.Model(coords=coords) as model:
        if not names:
            model.add_coord("group", length=3)
        of = pymc.Data("of", np.array([0, 1, 2, 2]))
        size = pymc.Data("size", np.array([1.0, 2.0, 3.0]), dims="group")
        effect = pymc.Normal("effect", 0 * size, 1, dims="group")
        pymc.Normal("y", effect[of], 0.01, observed=np.zeros(4), shape=of.shape)
    return model


@pytest.mark.parametrize("names", [True, False])
def test_predictions_use_the_draws_of_variables_with_named_dimensions(names):
    """PyMC draws variables from their prior again if their coordinates or data seem changed."""
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    model = by_group(names)
    target = ksivi.from_pymc(model)
    draws = {"effect": jnp.arange(60.0).reshape(20, 3)}
    found = target.model.predictive(KEY, draws)["y"]
    np.testing.assert_allclose(found, draws["effect"][:, np.array([0, 1, 2, 2])], atol=0.1)
    with model:
        pymc.set_data({"of": np.array([2, 0])})
    found = target.model.predictive(KEY, draws)["y"]
    np.testing.assert_allclose(found, draws["effect"][:, np.array([2, 0])], atol=0.1)


def test_predictions_of_a_fixed_shape_say_how_to_follow_new_data():
    with pymc.Model() as model:
        x, slope = pymc.Data("x", np.arange(3.0)), pymc.Normal("slope", 0, 1)
        pymc.Normal("y", slope * x, 1, observed=np.zeros(3))
        target = ksivi.from_pymc(model)
        pymc.set_data({"x": np.arange(2.0)})
    words = "predictive failed: .*pymc.set_data, give the observed variable dims, or shape=x.shape"
    with pytest.raises(ValueError, match=words):
        target.model.predictive(KEY, {"slope": jnp.zeros(4)})


def named_in_many_ways():
    """A simplex by group, a dimension without labels, an axis without a name, and data by time."""
    with pymc.Model(coords={"group": ["a", "b"], "part": ["x", "y", "z"]}) as model:
        model.add_coord("time", length=4)
        row = pymc.Data("input", np.array([0.1, 0.2, 0.3, 0.4]), dims="time")
        shares = pymc.Dirichlet("shares", np.ones((2, 3)), dims=("group", "part"))
        effect = pymc.Normal("effect", 0, 1, dims="group")
        plain = pymc.Normal("plain", 0, 1, shape=2)
        mean = pymc.Deterministic("mean", row * effect.sum(), dims="time")
        level = mean + plain.sum() + shares[0, 0]
        pymc.Normal("y", level, 1, observed=np.ones(4), dims="time")
    return model


def test_dimensions_and_coordinates_are_those_of_pymcs_own_draws():
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    model = named_in_many_ways()
    with model:
        theirs = pymc.sample_prior_predictive(3, random_seed=1)
        step = pymc.Metropolis()
        chains = pymc.sample(
            3,
            tune=3,
            chains=1,
            step=step,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    target = ksivi.from_pymc(model)
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(target.dim), target)
    groups = ("posterior_predictive", "prior", "prior_predictive")
    ours = posterior.to_arviz(KEY, 7, unconstrained=True, **dict.fromkeys(groups, True))
    for group, same in (
        ("posterior", chains["posterior"]),
        ("observed_data", chains["observed_data"]),
        ("log_likelihood", theirs["prior_predictive"]),
        ("posterior_predictive", theirs["prior_predictive"]),
        ("prior", theirs["prior"]),
        ("prior_predictive", theirs["prior_predictive"]),
    ):
        assert set(ours[group].data_vars) == set(same.data_vars)
        for name, values in same.data_vars.items():
            found = ours[group][name]
            of_draws = ("chain", "draw", "sample")
            dims = [dim for dim in values.dims if dim not in of_draws]
            assert [dim for dim in found.dims if dim not in of_draws] == dims, (group, name)
            for dim in dims:
                np.testing.assert_array_equal(found[dim], values[dim])
    # On the unconstrained scale the shares of a group are two numbers, which have no labels.
    assert ours["unconstrained_posterior"]["shares"].dims[-2:] == ("group", "shares_dim_1")
    np.testing.assert_array_equal(ours["posterior"]["effect"]["group"], ["a", "b"])
