"""The table that every objective and method enters: it traces once, repeats itself, and finds a Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi.kernels import IMQ
from ksivi.objectives import AISIVI, KPG, KPGIS, PVI, AmortizedSVGD, DenoisedScore
from ksivi.results import ChainDiagnostics

pytest.importorskip("blackjax")

KEY = jax.random.key(0)
COVARIANCE = np.array(
    [
        [2.0, 1.2, 0.3, 0.0, 0.0],
        [1.2, 1.5, 0.5, 0.2, 0.0],
        [0.3, 0.5, 1.0, 0.4, -0.2],
        [0.0, 0.2, 0.4, 0.8, 0.3],
        [0.0, 0.0, -0.2, 0.3, 0.6],
    ]
)
MEAN, SD = np.array([1.0, -1.0, 0.0, 2.0, 0.5]), np.sqrt(np.diag(COVARIANCE))
OBJECTIVES = {
    "ksivi": lambda: ksivi.KSIVI(num_samples=100),
    "ksivi-u": lambda: ksivi.KSIVI(IMQ(), "u-statistic", 100),
    "ksivi-stein": lambda: ksivi.KSIVI(estimator="stein", num_samples=100),
    "ksivi-combined": lambda: ksivi.KSIVI(estimator="combined", num_samples=100),
    "sivi": lambda: ksivi.SIVI(100, 100),
    "sivi-sm": lambda: ksivi.SIVISM(100, (64, 64), warm_up=5),
    "uivi": lambda: ksivi.UIVI(100),
    "wake": lambda: ksivi.Wake(100, 100),
    "jeffreys, wake": lambda: ksivi.Jeffreys(ksivi.SIVI(100, 100), ksivi.Wake(100, 100)),
    "kpg": lambda: KPG(100),
    "kpg-is": lambda: KPGIS(100, 10, proposal_hidden=(64, 64)),
    "amortized-svgd": lambda: AmortizedSVGD(100),
    "denoised-score": lambda: DenoisedScore(100, (64, 64), network_samples=512),
    "pvi": lambda: PVI(),
    "aisivi": lambda: AISIVI(proposal_layers=2),
    "jeffreys, points": lambda dim=5: ksivi.Jeffreys(ksivi.SIVI(100, 100), likelihood(dim)),
}
# Objectives that do not seek the target: they trace once and repeat themselves like the others.
STARTS = {
    "mean-prediction": lambda: ksivi.MeanPrediction(predict, jnp.ones((6, 2)), jnp.arange(6.0), 10)
}
ALIKE = ("ksivi-u", "ksivi-stein", "amortized-svgd", "wake", "jeffreys, points")
"""Objectives whose way of running is that of others."""
QUICK = [name for name in OBJECTIVES | STARTS if name not in ALIKE]
METHODS = {
    "svgd": lambda **o: ksivi.SVGD(**o),
    "ksdd": lambda **o: ksivi.KSDD(**o),
    "ksdd, adam": lambda **o: ksivi.KSDD(
        **{"num_steps": 1_000, "optimizer": optax.adam(0.05), **o}
    ),
    "mied": lambda **o: ksivi.MIED(**o),
    "sgld": lambda **o: ksivi.SGLD(**o),
    "mala": lambda **o: ksivi.MALA(**{"num_chains": 200, **o}),
    "nuts": lambda **o: ksivi.NUTS(**o),
}
SHORT = {
    "svgd": {"num_particles": 20, "num_steps": 30},
    "ksdd": {"num_particles": 20, "num_steps": 30},
    "ksdd, adam": {"num_particles": 20, "num_steps": 30},
    "mied": {"num_particles": 20, "num_steps": 30},
    "sgld": {"num_chains": 5, "num_warmup": 20, "num_draws": 5, "thin": 2},
    "mala": {"num_chains": 5, "num_warmup": 20, "num_draws": 5, "thin": 2},
    "nuts": {"num_chains": 5, "num_warmup": 20, "num_draws": 5},
}


def likelihood(dim):
    """Of exact draws, of which the first coordinates are taken."""
    points = np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, size=2_000)[:, :dim]
    return ksivi.MaximumLikelihood(jnp.asarray(points, float), 100, 100)


def predict(x, inputs):
    return inputs @ x


def gaussian():
    precision, mean = jnp.asarray(np.linalg.inv(COVARIANCE), float), jnp.asarray(MEAN, float)
    return ksivi.Target(lambda x: -0.5 * (x - mean) @ precision @ (x - mean), dim=5)


def family(key=KEY):
    return ksivi.SemiImplicit.mlp(key, dim=5, mixing_dim=5, hidden=(50, 50), log_var=-1.0)


def counted():
    """A target, and the list that its Python code grows each time it runs."""
    calls = []

    def log_likelihood(x, batch):
        calls.append(None)
        return -0.5 * jnp.sum((batch - x[None]) ** 2)

    def log_prior(x):
        return -0.5 * jnp.sum(x**2)

    def make(seed):
        rows = jnp.asarray(np.random.default_rng(seed).normal(size=(8, 2)), float)
        return ksivi.Target.from_data(log_prior, log_likelihood, rows, dim=2)

    return make, calls


def same(a, b):
    return all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def sound(history):
    assert len(history["step"]) == len(history["loss"])
    assert all(np.isfinite(values).all() for values in history.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_find_a_correlated_gaussian(name):
    steps = 4_000
    schedule = optax.cosine_decay_schedule(3e-3, steps)
    fit = ksivi.train(
        KEY,
        gaussian(),
        family(),
        OBJECTIVES[name](),
        optimizer=optax.adam(schedule),
        num_steps=steps,
    )
    draws = np.asarray(fit.posterior.sample(jax.random.key(1), 20_000))
    assert np.all(np.abs(draws.mean(0) - MEAN) < 0.1 * SD)
    assert np.all(np.abs(draws.std(0) / SD - 1) < (0.2 if name == "sivi-sm" else 0.1))
    sound(fit.history)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_methods_find_a_correlated_gaussian(name):
    """Means within 4 standard errors for chains, of the effective sample size; within 0.1 sd for particles."""
    fit = ksivi.run(KEY, gaussian(), METHODS[name]())
    draws = np.asarray(fit.posterior.family.points)
    chains = isinstance(fit.diagnostics, ChainDiagnostics)
    error = 4 / np.sqrt(fit.diagnostics.effective_sample_size) if chains else 0.1
    assert np.all(np.abs(draws.mean(0) - MEAN) < error * SD)
    assert np.all(np.abs(draws.std(0) / SD - 1) < (0.1 if chains else 0.2))
    assert str(fit.status).startswith("converged" if name in ("mala", "nuts") else "step limit")
    assert fit.trusted == (name in ("mala", "nuts"))
    sound(fit.history)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in ALIKE)]
)
def test_objectives_trace_once_and_repeat_themselves(name):
    make, calls = counted()
    start = ksivi.SemiImplicit.mlp(KEY, dim=2, mixing_dim=3, hidden=(8,))
    options_of = {"dim": 2} if name == "jeffreys, points" else {}

    def train(seed, **options):
        objective = (OBJECTIVES | STARTS)[name](**options_of)
        return ksivi.train(KEY, make(seed), start, objective, num_steps=12, **options)

    first = train(0)
    traced = len(calls)
    assert same(first.posterior, train(0).posterior)
    other = train(1)
    assert not np.array_equal(first.history["stein_ratio"], other.history["stein_ratio"])
    assert same(first.posterior.family, other.posterior.family) == (name in STARTS)
    assert len(calls) == traced
    assert same(first.posterior, train(0, chunk_size=5).posterior)
    assert np.array_equal(first.history["loss"], train(0, chunk_size=5).history["loss"])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "ksdd, adam" else [])
        for name in METHODS
    ],
)
def test_methods_trace_once_and_repeat_themselves(name):
    make, calls = counted()

    def run(seed, **options):
        return ksivi.run(KEY, make(seed), METHODS[name](**SHORT[name]), **options)

    first = run(0)
    traced = len(calls)
    assert same(first.posterior, run(0).posterior)
    assert not same(first.posterior, run(1).posterior)
    assert len(calls) == traced
    assert same(first.posterior, run(0, chunk_size=7).posterior)
    assert np.array_equal(first.history["loss"], run(0, chunk_size=7).history["loss"])
