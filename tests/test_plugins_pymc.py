"""ksivi as a method of `pymc.fit`, and of bambi through it: what they return, and where it is right."""

import dataclasses
import warnings

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import ksivi
from ksivi.plugins._options import fit_with
from ksivi.plugins._pymc import _approximation_class
from ksivi.results import Code, Status

pymc = pytest.importorskip("pymc", reason="PyMC is not installed")
arviz = pytest.importorskip("arviz", reason="ArviZ is not installed")
pytestmark = [
    # PyTensor's, of its own compiler and of a machine without BLAS.
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore::FutureWarning:pymc"),
]

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
X = np.linspace(-1, 1, 40)
Y = 0.5 + 2 * X + 0.3 * np.random.default_rng(0).normal(size=40)


def exact_elpd():
    """Of `regression`: the density of each row given the others, with sums over a grid of noises."""
    design, noises = np.column_stack([np.ones(40), X]), np.linspace(0.1, 0.8, 200)
    evidence = lambda rows: logsumexp(  # noqa: E731
        [
            stats.multivariate_normal(
                np.zeros(len(rows)), 4 * design[rows] @ design[rows].T + s**2 * np.eye(len(rows))
            ).logpdf(Y[rows])
            - s**2 / 2
            for s in noises
        ]
    )
    everything = np.arange(40)
    return sum(evidence(everything) - evidence(np.delete(everything, i)) for i in everything)


def regression():
    """Variables that are not in the order of their names, one of them with a transform."""
    with pymc.Model(coords={"row": np.arange(40)}) as model:
        slope = pymc.Normal("slope", 0, 2)
        noise = pymc.HalfNormal("noise", 1)
        intercept = pymc.Normal("intercept", 0, 2)
        mean = pymc.Deterministic("mean", intercept + slope * X, dims="row")
        pymc.Normal("y", mean, noise, observed=Y, dims="row")
    return model


@pytest.fixture(scope="module")
def fitted():
    model = regression()
    method = ksivi.plugins.pymc(random_seed=1, progress=False)
    with model:
        return model, method, pymc.fit(method=method, progressbar=False)


def test_it_returns_an_approximation_of_pymc(fitted):
    _, method, approx = fitted
    assert isinstance(method, pymc.variational.Inference)
    assert isinstance(approx, pymc.variational.Approximation)
    assert isinstance(approx.ksivi, ksivi.Fit)
    assert approx.trusted, approx.ksivi.status
    assert method.approx is approx.approx is approx
    assert method.ksivi is approx.ksivi
    np.testing.assert_array_equal(approx.hist, approx.ksivi.history["loss"])
    assert repr(approx) == str(approx) == "KSIVIApproximation(3 values, trusted)"


def test_its_draws_are_those_of_pymcs_approximations(fitted):
    """Names, dimensions, coordinates and types are those that ADVI's draws have."""
    model, _, approx = fitted
    with model:
        theirs = pymc.fit(10, method="advi", progressbar=False, random_seed=1).sample(30)
    ours = approx.sample(30)
    assert type(ours) is type(theirs)
    assert set(ours.posterior.data_vars) == set(theirs.posterior.data_vars)
    for name, values in theirs.posterior.items():
        found = ours.posterior[name]
        assert (found.dims, found.shape, found.dtype) == (values.dims, values.shape, values.dtype)
    np.testing.assert_array_equal(ours.posterior["row"], theirs.posterior["row"])
    np.testing.assert_allclose(ours.observed_data["y"], Y)


def test_deterministic_variables_belong_to_their_draw(fitted):
    draws = fitted[2].sample(50).posterior
    mean = draws["intercept"].to_numpy()[..., None] + draws["slope"].to_numpy()[..., None] * X
    np.testing.assert_allclose(draws["mean"], mean, rtol=1e-6)
    assert (draws["noise"] > 0).all()


def test_seeds_repeat_draws_and_calls_without_seed_do_not(fitted):
    approx = fitted[2]
    one, again, other = (
        approx.sample(5, random_seed=seed).posterior["slope"].to_numpy() for seed in (3, 3, None)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).all()
    assert (approx.sample(5).posterior["slope"].to_numpy() != other).all()


def test_arviz_summarises_and_compares_it(fitted):
    model, _, approx = fitted
    data = approx.sample(1_000)
    attributes = data.posterior.attrs
    assert attributes["inference_library"] == "ksivi"
    assert attributes["trusted"] == 1
    assert attributes["status"] == str(approx.ksivi.status)
    table = arviz.summary(data, kind="stats", var_names=["intercept", "slope", "noise"])
    np.testing.assert_allclose(table["mean"], [0.5, 2.0, 0.27], atol=0.1)
    pymc.compute_log_likelihood(data, model=model, progressbar=False)
    ours = approx.sample(1_000, log_likelihood=True)
    assert ours.log_likelihood["y"].dims == ("chain", "draw", "row")
    for found in (data, ours):
        loo = arviz.loo(found, reff=1.0)
        elpd = loo.elpd_loo if arviz.__version__.startswith("0.") else loo.elpd
        assert elpd == pytest.approx(exact_elpd(), abs=0.3)


def test_pymcs_own_functions_of_an_approximation_work(fitted):
    model, _, approx = fitted
    draws = approx.sample_node(model["slope"], size=2_000).eval()
    assert draws.shape == (2_000,)
    assert draws.mean() == pytest.approx(2.0, abs=0.1)
    trace = approx.sample(20, return_inferencedata=False)
    assert len(trace) == 20
    with pytest.raises(ValueError, match="log_likelihood must be False with return_inferencedata"):
        approx.sample(20, return_inferencedata=False, log_likelihood=True)


def test_a_fit_that_is_not_trusted_warns_once():
    """A funnel is more than a few steps of a tiny network can learn."""
    recipe = ksivi.Recipe(num_runs=1, num_samples=4, num_mixing=4, num_pretraining=0, hidden=(2,))
    options = {"num_steps": 5, "recipe": recipe, "progress": False}
    with pymc.Model(name="funnel") as funnel:
        pymc.Normal("x", 0, pymc.math.exp(pymc.Normal("v", 0, 2)), shape=3)
    with (
        funnel,
        pytest.warns(UserWarning, match="ksivi does not trust these draws. not trusted") as seen,
    ):
        approx = pymc.fit(method=ksivi.plugins.pymc(random_seed=1, **options))
    assert len([one for one in seen if "ksivi" in str(one.message)]) == 1
    assert seen[0].filename == __file__
    assert not approx.trusted
    assert repr(approx) == "KSIVIApproximation(model 'funnel', 4 values, not trusted)"
    assert len(approx.hist) > 0
    assert approx.sample(3).posterior.attrs["trusted"] == 0


def refined(fit, *doubts):
    """The same fit with these doubts, corrected by HMC, and the warnings."""
    status = Status.of_doubts("not trusted", doubts)
    earlier = dataclasses.replace(fit, status=status, trusted=False)
    options = {"init": earlier, "refine": "hmc", "progress": False}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        key, target = jax.random.key(0), fit.posterior.target
        found = fit_with(key, target, options, "approx.ksivi", stacklevel=1)
    return found, [str(one.message) for one in seen if "ksivi" in str(one.message)]


MOVED = Code.CHAINS_MOVE.doubt("chains of HMC move the draws", (0,))
IMPROPER = Code.IMPROPER.doubt("the posterior may be improper")


def test_the_verdict_is_that_of_the_corrected_draws(fitted):
    """A correction removes the first doubt. The second one stays."""
    model, _, approx = fitted
    for doubts, is_trusted in (((MOVED,), True), ((MOVED, IMPROPER), False)):
        fit, said = refined(approx.ksivi, *doubts)
        corrected = fit.refined
        assert corrected.trusted is is_trusted, corrected.status
        what_now = "print(approx.ksivi.explain()) says what to do"
        texts = [f"ksivi does not trust these draws. {corrected.status}. {what_now}"]
        assert said == ([] if is_trusted else texts)
        # Without corrected draws the fit's own verdict counts.
        for of, verdict in ((fit, corrected), (dataclasses.replace(fit, refined=None), fit)):
            ours = _approximation_class()(of, model, np.random.default_rng(0), 100)
            assert ours.trusted is verdict.trusted
            attributes = ours.sample(2).posterior.attrs
            assert attributes["status"] == str(verdict.status)
            assert attributes["trusted"] == int(verdict.trusted)
            assert attributes["method"] == "ksivi.fit"


def test_corrected_draws_know_their_verdict_in_arviz(fitted):
    corrected = refined(fitted[2].ksivi, MOVED)[0].refined
    attributes = corrected.posterior.to_arviz(jax.random.key(0), 5).posterior.attrs
    assert attributes["status"] == str(corrected.status)
    assert attributes["trusted"] == 1
    assert attributes["refine"] == "hmc"
    assert 0 < attributes["effective_sample_size"] <= 5
    doubted = corrected.with_doubts([IMPROPER])
    assert doubted.posterior.attributes["trusted"] == 0
    assert "improper" in doubted.posterior.attributes["status"]


def test_predictions_at_new_inputs_follow_the_recipe_of_the_docs():
    """PyMC keeps the observed data beside the predictions, unless it is told that inputs are new."""
    new = {"predictions": True, "var_names": ["y"], "random_seed": 1, "progressbar": False}
    with pymc.Model(coords={"row": np.arange(40)}) as model:
        inputs = pymc.Data("inputs", X, dims="row")
        slope, noise = pymc.Normal("slope", 0, 2), pymc.HalfNormal("noise", 1)
        pymc.Normal("y", 0.5 + slope * inputs, noise, observed=Y, dims="row")
        method = ksivi.plugins.pymc(random_seed=1, at_least="gaussian", progress=False)
        approx = pymc.fit(method=method, progressbar=False)
        draws = approx.sample(200)
        pymc.set_data({"inputs": [2.0, 3.0]}, coords={"row": [40, 41]})
        theirs = pymc.sample_posterior_predictive(draws, **new)
    posterior, key = approx.ksivi.posterior, jax.random.key(0)
    ours = posterior.predictive(key, 200)["y"]
    assert ours.shape == (200, 2)
    for found in (theirs.predictions["y"].to_numpy()[0], ours):
        np.testing.assert_allclose(found.mean(axis=0), [4.5, 6.5], atol=0.2)
    words = "the log likelihood of the model failed: .* set the data of the fit again first"
    with pytest.raises(ValueError, match=words):
        posterior.to_arviz(key, 5)
    with model:
        pymc.set_data({"inputs": X}, coords={"row": np.arange(40)})
    assert posterior.to_arviz(key, 5).log_likelihood["y"].sizes["row"] == 40


def test_bad_arguments_are_named():
    plain = ksivi.plugins.pymc
    for wrong, words in (
        (lambda: plain(model=3), r"model must be a pymc\.Model, got 3"),
        (lambda: plain(random_seed="a"), "random_seed must be None, a whole number"),
        (lambda: plain(draws=0), "draws must be a whole number of at least 1, got 0"),
        (lambda: plain(steps=3), "steps must be an option of ksivi.fit, which has init"),
        (lambda: plain().fit(), "model must be a pymc.Model, got None .* inside of `with model:`"),
        (
            lambda: plain().fit(callbacks=[print]),
            "callbacks must not be given: it is for PyMC's own methods",
        ),
        (lambda: plain().fit(obj_optimizer=print), "obj_optimizer must not be given"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()


@pytest.mark.slow
def test_centred_eight_schools_in_one_line():
    """The truth is NUTS on the non-centred model, which has the same posterior."""
    with pymc.Model() as model:
        mu, tau = pymc.Normal("mu", 0, 5), pymc.HalfCauchy("tau", 5)
        theta = pymc.Normal("theta", mu, tau, shape=8)
        pymc.Normal("effects", theta, ERRORS, observed=EFFECTS)
    with model:
        approx = pymc.fit(method=ksivi.plugins.pymc(random_seed=1, progress=False))
    draws = approx.sample(20_000).posterior
    with pymc.Model():
        mu, tau = pymc.Normal("mu", 0, 5), pymc.HalfCauchy("tau", 5)
        theta = pymc.Deterministic("theta", mu + tau * pymc.Normal("offset", 0, 1, shape=8))
        pymc.Normal("effects", theta, ERRORS, observed=EFFECTS)
        truth = pymc.sample(
            4_000, tune=1_000, chains=4, cores=1, random_seed=2, progressbar=False
        ).posterior
    for name in ("mu", "tau", "theta"):
        mean, sd = (getattr(truth[name], what)(("chain", "draw")) for what in ("mean", "std"))
        assert (abs(draws[name].mean(("chain", "draw")) - mean) < 0.1 * sd).all(), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning:bambi")
def test_a_hierarchical_model_of_bambi():
    bambi = pytest.importorskip("bambi", reason="bambi is not installed")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    school, x = np.repeat(np.arange(8), 12), rng.normal(size=96)
    y = 2 + 0.7 * x + rng.normal(0, 1.5, 8)[school] + rng.normal(0, 2, 96)
    frame = pandas.DataFrame({"y": y, "x": x, "school": pandas.Categorical(school)})
    # bambi undoes the centring of its predictors for NUTS, and not for approximations.
    model = bambi.Model("y ~ 1 + x + (1|school)", frame, center_predictors=False)
    method = ksivi.plugins.pymc(random_seed=1, progress=False)
    approx = model.fit(inference_method="vi", method=method)
    assert approx.trusted, approx.ksivi.status
    draws = approx.sample(10_000).posterior
    truth = model.fit(
        draws=4_000, chains=4, cores=1, random_seed=2, target_accept=0.95, progressbar=False
    ).posterior
    for name in ("Intercept", "x", "sigma", "1|school_sigma", "1|school"):
        mean, sd = (getattr(truth[name], what)(("chain", "draw")) for what in ("mean", "std"))
        assert (abs(draws[name].mean(("chain", "draw")) - mean) < 0.1 * sd).all(), name


def test_a_generator_and_the_model_as_an_argument_are_taken():
    model = regression()
    method = ksivi.plugins.pymc(
        model=model, random_seed=np.random.default_rng(3), at_least="gaussian", progress=False
    )
    approx = pymc.fit(method=method, model=model, progressbar=False)
    assert approx.sample(4).posterior.sizes["draw"] == 4
    # PyMC 6 passes these to every method.
    again = method.fit(progressbar=False, backend=None, include_transformed=False)
    assert again.sample(2).posterior.sizes["draw"] == 2
    with pytest.raises(NotImplementedError, match=r"ksivi\.fit takes as many steps as it needs"):
        method.refine(10)
