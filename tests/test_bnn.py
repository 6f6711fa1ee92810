"""Bayesian neural networks: rows and their splits, densities, scores, hyper-parameters, a start
near the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import ksivi
from ksivi.problems import AUTHORS_HYPER, Hyper, bnn
from ksivi.problems._regression import split_rows

KEY = jax.random.key(0)
HYPER = Hyper(-0.5, 0.3)
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(80, 3)) * np.array([1.0, 20.0, 0.0]) + np.array([0.0, 300.0, 5.0])
ROWS = np.column_stack(
    [INPUTS, 40 + 7 * np.sin(INPUTS[:, 0]) + 0.2 * INPUTS[:, 1] + RNG.normal(size=80)]
)


def network(weights, inputs):
    """f, unit by unit."""
    p = inputs.shape[1]
    w1, b1, w2, b2 = np.split(np.asarray(weights, np.float64), [50 * p, 50 * p + 50, 50 * p + 100])
    return (
        sum(w2[j] * np.maximum(inputs @ w1.reshape(p, 50)[:, j] + b1[j], 0) for j in range(50)) + b2
    )


def normalise(values, by):
    sd = by.std(0)
    return (values - by.mean(0)) / np.where(sd == 0, 1, sd)


def test_the_released_split_is_that_of_scikit_learn():
    rows = np.arange(506.0 * 2).reshape(506, 2)
    train, dev, test = split_rows(rows, "released")
    assert (len(train.y), len(dev.y), len(test.y)) == (409, 46, 51)
    assert [int(x) // 2 for x in test.x[:5, 0]] == [173, 274, 491, 72, 452]
    selection = pytest.importorskip("sklearn.model_selection")
    theirs, theirs_test = selection.train_test_split(rows, test_size=0.1, random_state=42)
    np.testing.assert_array_equal(np.concatenate([train.y, dev.y]), theirs[:, 1])
    np.testing.assert_array_equal(test.x[:, 0], theirs_test[:, 0])


def test_random_splits_are_other_splits_of_the_same_rows():
    parts = [np.concatenate([part.y for part in split_rows(ROWS, seed)]) for seed in (0, 0, 1)]
    assert np.array_equal(parts[0], parts[1])
    assert not np.array_equal(parts[0], parts[2])
    assert all(np.array_equal(np.sort(part), np.sort(ROWS[:, -1])) for part in parts)
    assert len(split_rows(np.zeros((9_568, 2)), 3)[1].y) == 500


@pytest.mark.parametrize("noise", ["paper", "released"])
def test_density_from_its_definition(noise, x64):
    """Against NumPy, with a constant column; the paper's γ is of y in original units, the released
    code's is not."""
    problem = bnn(ROWS, split=3, hyper=HYPER, noise=noise, batch_size=None)
    train, _, _ = split_rows(ROWS, 3)
    x, y = normalise(train.x, train.x), normalise(train.y, train.y)
    gamma = np.exp(HYPER.log_gamma) * (train.y.std() ** 2 if noise == "paper" else 1)

    def log_density(w):
        residuals = y - network(w, x)
        return -0.5 * gamma * np.sum(residuals**2) - 0.5 * np.exp(HYPER.log_lambda) * np.sum(w**2)

    a, b = (np.asarray(w) for w in problem.start(KEY, 2))
    assert problem.target.dim == a.size == (3 + 2) * 50 + 1
    ours = problem.target.log_density(jnp.asarray(a)) - problem.target.log_density(jnp.asarray(b))
    np.testing.assert_allclose(ours, log_density(a) - log_density(b), rtol=1e-9)


def test_minibatches_and_names():
    problem = bnn(ROWS, hyper=HYPER)
    assert problem.target.is_minibatched
    assert problem.target.draw_rows(KEY).shape == (len(problem.y_train),)
    assert bnn(ROWS, hyper=HYPER, batch_size=7).target.draw_rows(KEY).shape == (7,)
    assert problem.name == "bnn"
    with pytest.raises(ValueError, match="a Bayesian neural network has no reference draws"):
        problem.reference(KEY, 5)


def test_other_splits_and_hyper_parameters_do_not_trace_again_and_stack():
    traced = []

    @eqx.filter_jit
    def density(problem, x):
        traced.append(None)
        return problem.target.log_density(x)

    problems = [bnn(ROWS, split=s, hyper=Hyper(0.1 * s, 0.2 * s)) for s in range(3)]
    x = problems[0].start(KEY, 1)[0]
    values = [float(density(problem, x)) for problem in problems]
    assert len(traced) == 1
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
    np.testing.assert_allclose(
        eqx.filter_vmap(lambda p: p.target.log_density(x))(stacked), values, rtol=1e-5
    )
    assert len(set(values)) == 3


def test_predictions_and_scores_are_in_original_units(x64):
    problem = bnn(ROWS, split=3, hyper=HYPER)
    train, dev, test = split_rows(ROWS, 3)
    draws = problem.start(KEY, 4)
    f = np.array(
        [network(w, normalise(test.x, train.x)) * train.y.std() + train.y.mean() for w in draws]
    )
    np.testing.assert_allclose(problem.predict(draws[0], problem.x_test), f[0], rtol=1e-9)
    scores = problem.test_scores(draws)
    np.testing.assert_allclose(
        scores["rmse"], np.sqrt(np.mean((f.mean(0) - test.y) ** 2)), rtol=1e-9
    )
    densities = stats.norm(f, np.exp(-0.5 * HYPER.log_gamma)).pdf(test.y[None]).mean(0)
    np.testing.assert_allclose(scores["nll"], -np.log(densities).mean(), rtol=1e-9)
    assert problem.dev_scores(draws) != scores
    np.testing.assert_allclose(problem.y_dev, dev.y)


def test_weights_start_by_their_fan_in():
    start = np.asarray(bnn(ROWS, hyper=HYPER).start(KEY, 400))
    w1, b1, w2, b2 = np.split(start, [150, 200, 250], axis=1)
    assert not b1.any()
    assert not b2.any()
    np.testing.assert_allclose([w1.std(), w2.std()], [4**-0.5, 51**-0.5], rtol=0.02)


def test_the_joint_density_has_gamma_priors_and_their_jacobians(x64):
    problem = bnn(ROWS, hyper=HYPER)
    target = problem.hyper_target(batch_size=None)
    x, y = (normalise(np.asarray(c), np.asarray(c)) for c in (problem.x_train, problem.y_train))

    def log_density(theta):
        w, gamma, lam = theta[:-2], np.exp(theta[-2]), np.exp(theta[-1])
        prior = sum(stats.gamma(1, scale=1 / 0.1).logpdf(v) + np.log(v) for v in (gamma, lam))
        prior += stats.norm(0, lam**-0.5).logpdf(w).sum()
        return prior + stats.norm(network(w, x), gamma**-0.5).logpdf(y).sum()

    a, b = (np.asarray(theta) for theta in problem.hyper_start(KEY, 2))
    ours = target.log_density(jnp.asarray(a)) - target.log_density(jnp.asarray(b))
    np.testing.assert_allclose(ours, log_density(a) - log_density(b), rtol=1e-9)
    np.testing.assert_allclose(np.exp(-a[-2]), np.mean((y - network(a[:-2], x)) ** 2), rtol=1e-9)


def test_hyper_parameters_of_particles(x64):
    problem = bnn(ROWS, hyper=HYPER)
    particles = problem.hyper_start(KEY, 6)
    x = normalise(np.asarray(problem.x_dev), np.asarray(problem.x_train))
    mean, sd = np.mean(problem.y_train), np.std(problem.y_train)
    errors = [
        np.mean((problem.y_dev - network(p[:-2], x) * sd - mean) ** 2)
        for p in np.asarray(particles)
    ]
    found = problem.hyper_from_particles(particles)
    np.testing.assert_allclose(found, [-np.log(errors).mean(), particles[:, -1].mean()], rtol=1e-9)
    assert bnn(ROWS, hyper=found).hyper == found


@pytest.mark.slow
def test_svgd_finds_hyper_parameters_like_the_authors(data, monkeypatch):
    """Their log γ of boston within 0.2; log λ rises by the 2,000 steps of 1e-3 from where its 20
    particles start."""
    monkeypatch.setenv("KSIVI_DATA", str(data))
    problem = bnn("boston")
    assert problem.target.dim == 751
    assert problem.name == "bnn-boston"
    start = problem.hyper_start(KEY, 20)
    optimizer = optax.rmsprop(1e-3, decay=0.9, eps=1e-6, eps_in_sqrt=False, bias_correction=True)
    fit = ksivi.run(
        jax.random.key(1),
        problem.hyper_target(),
        ksivi.SVGD(20, 2_000, optimizer=optimizer, start=start),
    )
    found = problem.hyper_from_particles(fit.posterior.sample(KEY, 20))
    assert abs(found.log_gamma - AUTHORS_HYPER["boston"].log_gamma) < 0.2
    assert abs(found.log_lambda - (start[:, -1].mean() + 2.0)) < 0.1


@pytest.mark.parametrize("name", AUTHORS_HYPER)
def test_the_sets_of_the_paper(name, data):
    shapes = {"boston": 13, "concrete": 8, "power": 4, "wine": 11, "protein": 9, "yacht": 6}
    problem = bnn(name, data=data / "uci" / f"{name}.txt")
    assert problem.target.dim == (shapes[name] + 2) * 50 + 1
    normalised = problem.predict.units.outputs(problem.y_train)
    np.testing.assert_allclose([normalised.mean(), normalised.std()], [0, 1], atol=1e-4)


def test_friedmans_rows_need_no_file():
    problem = bnn("friedman", hyper=Hyper(0.0, 0.0))
    assert problem.name == "bnn-friedman"
    assert problem.target.dim == 351
    assert len(problem.y_train) + len(problem.y_dev) + len(problem.y_test) == 500


def test_mean_prediction_from_its_definition():
    problem = bnn(ROWS, hyper=HYPER)
    objective = ksivi.MeanPrediction(problem.predict, problem.x_dev, problem.y_dev, 5)
    family = ksivi.SemiImplicit.location_scale(problem.target.dim, loc=0.1, log_var=-4.0)
    draws = objective.draw(KEY, problem.target, family)
    loss = eqx.filter_jit(lambda target: objective.loss(family, None, draws, target, 0))
    error = lambda x: np.mean((predict(x, problem.x_dev).mean(0) - problem.y_dev) ** 2)  # noqa: E731
    predict = jax.jit(jax.vmap(problem.predict, in_axes=(0, None)))
    x = family.transport((draws.z, draws.xi))[0]
    value, records = loss(problem.target)
    np.testing.assert_allclose(value, error(x), rtol=1e-4)
    scores = jax.jit(jax.vmap(problem.target.on_rows(draws.rows).score))(x)
    np.testing.assert_allclose(
        records["stein_ratio"], -jnp.mean(scores * (x - x.mean(0, keepdims=True))), rtol=1e-3
    )
    # In whitened coordinates the same draws predict from where they stand in the original ones.
    whitened = problem.target.whitened(
        jnp.ones(problem.target.dim), jnp.full(problem.target.dim, 0.5)
    )
    np.testing.assert_allclose(loss(whitened)[0], error(1 + 0.5 * x), rtol=1e-4)


@pytest.mark.slow
def test_pretraining_brings_the_mean_prediction_to_the_development_rows():
    problem = bnn(ROWS, hyper=HYPER)
    family = ksivi.SemiImplicit.mlp(KEY, problem.target.dim, 3, (10, 10), log_var=-8.0)
    objective = ksivi.MeanPrediction(problem.predict, problem.x_dev, problem.y_dev, 20)
    fit = ksivi.train(
        KEY, problem.target, family, objective, optimizer=optax.adam(1e-2), num_steps=100
    )
    before, after = (
        problem.dev_scores(f.sample(KEY, 100))["rmse"] for f in (family, fit.posterior.family)
    )
    assert after < 0.5 * before
    assert fit.cost.score_evals == 100 * 20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bnn("iris"), "dataset must be one of 'boston', .* got 'iris'"),
        (
            lambda: bnn(ROWS),
            r"hyper must be a ksivi.problems.Hyper\(log_gamma, log_lambda\), which your own data need, got None",
        ),
        (lambda: bnn(ROWS, hyper=Hyper(np.nan, 0.0)), "hyper must hold two finite numbers"),
        (
            lambda: bnn(ROWS, hyper=HYPER, split="mine"),
            "split must be 'released' or a whole number, got 'mine'",
        ),
        (
            lambda: bnn(ROWS, hyper=HYPER, noise="none"),
            "noise must be one of 'paper', 'released', got 'none'",
        ),
        (
            lambda: bnn(ROWS, hyper=HYPER, batch_size=0),
            "batch_size must be a whole number of at least 1, got 0",
        ),
        (
            lambda: bnn(ROWS[:5], hyper=HYPER),
            r"rows must be at least 10, of inputs and a target, got shape \(5, 4\)",
        ),
        (lambda: bnn("boston", data="nowhere.txt"), "there is no file nowhere.txt"),
        (
            lambda: bnn(ROWS, hyper=HYPER).test_scores(jnp.ones((2, 3))),
            r"draws must be an array of shape \(n, 251\)",
        ),
        (
            lambda: ksivi.MeanPrediction(None, jnp.ones((3, 2)), jnp.ones(3)),
            "predict must be a function of a draw and inputs, got None",
        ),
        (
            lambda: ksivi.MeanPrediction(lambda x, i: i @ x, jnp.ones((3, 2)), jnp.ones(4)),
            r"inputs and outputs must have one row per .* got shapes \(3, 2\) and \(4,\)",
        ),
        (
            lambda: ksivi.train(
                KEY,
                ksivi.problems.banana().target,
                ksivi.SemiImplicit.location_scale(2),
                ksivi.MeanPrediction(lambda x, i: x, jnp.ones((3, 2)), jnp.ones(3)),
                num_steps=1,
            ),
            r"predict must return 3 outputs, one per row of inputs, got shape \(2,\)",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
