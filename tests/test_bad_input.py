"""Every message names the argument, what came and what was expected."""

import jax
import jax.numpy as jnp
import optax
import pytest

import ksivi
from ksivi.families import SampledMixing, SemiImplicit

KEY = jax.random.key(0)
normal = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
FAMILY = SemiImplicit.location_scale(2)
ONES = jnp.ones((5, 2))


def target():
    return ksivi.Target(normal, dim=2)


def train(**changes):
    arguments = {
        "key": KEY,
        "target": target(),
        "family": FAMILY,
        "objective": ksivi.KSIVI(num_samples=5),
        "num_steps": 2,
    }
    arguments |= changes
    return ksivi.train(**arguments)


BAD = {
    "num_samples 1": (
        lambda: ksivi.KSIVI(num_samples=1),
        "num_samples must be a whole number of at least 2, got 1",
    ),
    "num_samples 10.0": (
        lambda: ksivi.KSIVI(num_samples=10.0),
        "num_samples must be a whole number",
    ),
    "an estimator": (
        lambda: ksivi.KSIVI(estimator="v"),
        "estimator must be one of 'vanilla', 'u-statistic', 'stein', 'combined', 'mixture', got 'v'",
    ),
    "a kernel": (lambda: ksivi.KSIVI(kernel="gaussian"), "kernel must be one of ksivi.kernels"),
    "a rough kernel": (
        lambda: ksivi.KSIVI(ksivi.kernels.Riesz(), "stein"),
        'kernel must be smooth for estimator="stein", .* "vanilla" .* such as Gaussian.*; Riesz is',
    ),
    "a rough part of a kernel": (
        lambda: ksivi.KSIVI(
            ksivi.kernels.Sum([ksivi.kernels.IMQ(), ksivi.kernels.Laplace()]), "combined"
        ),
        'kernel must be smooth for estimator="combined", .*; Laplace is not one',
    ),
    "a Matérn kernel with one derivative": (
        lambda: ksivi.KSIVI(ksivi.kernels.Matern(nu=1.5), "stein"),
        "nu must be 2.5, got 1.5",
    ),
    "an inverse covariance for the Stein form": (
        lambda: ksivi.KSIVI(estimator="stein", inverse_covariance=True),
        'inverse_covariance needs estimator="vanilla" or "u-statistic", got "stein"',
    ),
    "a tilt of a kernel with derivatives": (
        lambda: ksivi.KSIVI(estimator="combined", tilt=ksivi.objectives.Tilt(across=0.5)),
        'tilt needs an estimator without derivatives, such as "mixture", got "combined"',
    ),
    "a mixture of fewer z than samples": (
        lambda: ksivi.KSIVI(estimator="mixture", num_samples=10, num_mixing=5),
        "num_mixing must be a whole number of at least 10, got 5",
    ),
    "a mixture of a form without one": (
        lambda: ksivi.KSIVI(num_samples=10, num_mixing=20),
        'num_mixing needs estimator="mixture", got "vanilla"',
    ),
    "a tilt that is a number": (
        lambda: ksivi.KSIVI(tilt=0.5),
        "tilt must be a ksivi.objectives.Tilt, got .*0.5",
    ),
    "a tilt of 1": (
        lambda: ksivi.objectives.Tilt(across=1.0),
        "across must be one number, at least 0 and below 1, got .*1.0",
    ),
    "noise_per_z": (
        lambda: ksivi.KSIVI(num_samples=10, noise_per_z=3),
        "noise_per_z must divide num_samples = 10",
    ),
    "an annealing horizon": (
        lambda: ksivi.Annealing(horizon=0),
        "horizon must be one positive number, got 0",
    ),
    "an annealing start": (
        lambda: ksivi.Annealing(start=-1, horizon=9),
        "start must be one positive number",
    ),
    "an annealing base": (
        lambda: ksivi.Annealing(horizon=9, base_scale=0.0),
        "base_scale must be one positive number",
    ),
    "tails of a base that is not there": (
        lambda: ksivi.Annealing(horizon=9, base_dof=2.0),
        "base_dof needs a base_scale, got none",
    ),
    "annealing by a number": (
        lambda: ksivi.KSIVI(annealing=0.5),
        "annealing must be a function of the step",
    ),
    "a weight": (
        lambda: ksivi.KSIVI(log_density_weight="a"),
        "log_density_weight must be one positive number",
    ),
    "a horizon alone": (lambda: ksivi.KSIVI(log_density_horizon=9), "needs a log_density_weight"),
    "a bandwidth": (
        lambda: ksivi.kernels.Gaussian(2.0),
        r"bandwidth must be Median\(\) or Fixed\(h\), got 2.0",
    ),
    "a kernel sum": (lambda: ksivi.kernels.Sum([1, 2]), "kernels must be a list of kernels"),
    "few samples for a covariance": (
        lambda: train(objective=ksivi.KSIVI(num_samples=2, inverse_covariance=True)),
        "inverse_covariance needs more than dim = 2 samples per batch, got 2",
    ),
    "an odd minibatched u-statistic": (
        lambda: train(
            target=ksivi.Target.from_data(
                normal, lambda x, b: jnp.sum(x * b[0]), ONES, 2, batch_size=2
            ),
            objective=ksivi.KSIVI(estimator="u-statistic", num_samples=5),
        ),
        "num_samples must be even for a minibatched u-statistic",
    ),
    "an optimizer": (lambda: train(optimizer="adam"), "optimizer must be an Optax transformation"),
    "an optimizer of nothing": (
        lambda: train(optimizer=lambda rate: rate),
        "optimizer must make an Optax transformation",
    ),
    "two learning rates": (
        lambda: train(optimizer=optax.adam(1e-3), learning_rate=1e-3),
        "learning_rate must be unset if optimizer is an Optax transformation",
    ),
    "a rate too many": (
        lambda: train(optimizer=None, learning_rate=[1e-3, 1e-2]),
        r"learning_rate must be one .* \(2,\)",
    ),
    "a negative rate": (
        lambda: train(optimizer=None, learning_rate=-1.0),
        "learning_rate must be one positive number",
    ),
    "a list for one key": (
        lambda: train(objective=[ksivi.KSIVI(num_samples=10)]),
        "objective must be a list with one per key, got 1 for keys of shape ()",
    ),
    "objectives of two kinds": (
        lambda: train(
            key=jax.random.split(KEY, 2),
            objective=[ksivi.KSIVI(), ksivi.KSIVI(estimator="u-statistic")],
        ),
        "all objectives must have the same structure",
    ),
    "targets of two shapes": (
        lambda: train(
            key=jax.random.split(KEY, 2),
            target=[ksivi.Target(normal, dim=2), ksivi.Target(normal, dim=3)],
        ),
        "all targets must have the same structure",
    ),
    "a callback": (lambda: train(callbacks=[1]), "callbacks must be a list of functions"),
    "callbacks": (lambda: train(callbacks=print), "callbacks must be a list of functions"),
    "ema text": (lambda: train(ema="0.9"), "ema must be a decay"),
    "-inf where the family starts": (
        lambda: train(
            target=ksivi.Target(
                lambda x: jnp.where(jnp.all(jnp.abs(x) < 1), normal(x), -jnp.inf), dim=2
            )
        ),
        "target must be finite where the family starts",
    ),
    "hidden": (
        lambda: SemiImplicit.mlp(KEY, 2, 2, hidden=50),
        r"hidden must be a list of widths, such as \(50, 50\)",
    ),
    "an activation": (
        lambda: SemiImplicit.mlp(KEY, 2, 2, activation=None),
        "activation must be a function",
    ),
    "a sampler": (lambda: SampledMixing(3), "sampler must be a function of a key"),
    "a mixing of another dim": (
        lambda: SemiImplicit.mlp(KEY, 2, 2, mixing=lambda key: jax.random.normal(key, (5,))),
        "mixing and conditional do not fit together",
    ),
    "log_var on the floor": (
        lambda: SemiImplicit.mlp(KEY, 2, 2, log_var=-20.0),
        "must be above min_log_var",
    ),
    "a NaN log_var": (
        lambda: SemiImplicit.location_scale(2, log_var=float("nan")),
        "log_var must be above",
    ),
    "a floor's shape": (
        lambda: SemiImplicit.location_scale(2, min_log_var=jnp.ones(3)),
        "min_log_var must be one number",
    ),
    "a family sample": (lambda: FAMILY.sample(0, 3), "key must be a JAX random key"),
    "a metric's score": (
        lambda: ksivi.metrics.ksd(ONES, lambda x: x[:1]),
        r"score must return shape \(2,\)",
    ),
    "a target for a score": (
        lambda: ksivi.metrics.ksd(ONES, target()),
        "score must be a function, such as",
    ),
    "a metric's kernel": (
        lambda: ksivi.metrics.ksd(ONES, lambda x: -x, kernel="imq"),
        "kernel must be one of",
    ),
    "p": (lambda: ksivi.metrics.wasserstein(ONES, ONES, p=0), "p must be a whole number"),
    "NaN observations": (
        lambda: ksivi.problems.diffusion(5, observations=[float("nan")]),
        "must be finite",
    ),
    "a seed": (lambda: ksivi.problems.diffusion(5, seed="a"), "seed must be a whole number"),
    "a path": (
        lambda: train().posterior.save("nowhere/p"),
        "path must name a file in a folder that exists",
    ),
    "a key that is not one": (
        lambda: train(key=0),
        r"key must be a JAX random key .* got 0 \(int\)",
    ),
    "an array for a key": (lambda: train(key=jnp.zeros(2)), "key must be a JAX random key"),
    "a square of keys": (lambda: train(key=jax.random.split(KEY, (2, 2))), "flat batch of keys"),
    "a family key": (
        lambda: SemiImplicit.mlp(0, dim=2, mixing_dim=2),
        "key must be a JAX random key",
    ),
    "a batch of family keys": (
        lambda: SemiImplicit.mlp(jax.random.split(KEY), dim=2, mixing_dim=2),
        "key must be one key",
    ),
    "no steps": (
        lambda: train(num_steps=0),
        "num_steps must be a whole number of at least 1, got 0",
    ),
    "negative steps": (
        lambda: train(num_steps=-5),
        "num_steps must be a whole number of at least 1, got -5",
    ),
    "a chunk of 0": (lambda: train(chunk_size=0), "chunk_size must be a whole number"),
    "another dim": (
        lambda: train(family=SemiImplicit.location_scale(3)),
        "family must have the target's dim 2, got dim 3",
    ),
    "no target": (lambda: train(target=normal), "target must be a ksivi.Target, got function"),
    "no family": (lambda: train(family=None), "family must be a ksivi.SemiImplicit"),
    "no objective": (lambda: train(objective=None), "objective must be one of ksivi's objectives"),
    "ema 1": (lambda: train(ema=1.0), r"ema must be a decay in \[0, 1\), got 1.0"),
    "a resumed nothing": (lambda: train(resume=3), "resume must be the state of a Fit"),
    "a resume that is done": (
        lambda: train(resume=train().state),
        "num_steps must be more than the 2 steps already done",
    ),
    "a resume of too many": (
        lambda: train(resume=[train().state] * 2),
        "resume must have one state per key",
    ),
    "a start without a score": (
        lambda: train(target=ksivi.Target(lambda x: jnp.sum(jnp.sqrt(1.5 - x)), dim=2)),
        "NaN or infinite at .* of 100 draws",
    ),
    "a scale": (
        lambda: SemiImplicit.mlp(KEY, 2, 2, scale="z"),
        "scale must be one of 'global', 'network'",
    ),
    "a width": (
        lambda: SemiImplicit.mlp(KEY, 2, 2, hidden=(0,)),
        r"hidden\[0\] must be a whole number",
    ),
    "a log_var": (
        lambda: SemiImplicit.mlp(KEY, 2, 2, log_var=jnp.zeros(3)),
        r"log_var must be one number or have shape \(2,\)",
    ),
    "a mixing sampler": (
        lambda: SampledMixing(lambda key: jax.random.normal(key)),
        "sampler must return one floating vector",
    ),
    "n": (lambda: train().posterior.sample(KEY, 0), "n must be a whole number of at least 1"),
    "a sampling key": (lambda: train().posterior.sample(1, 5), "key must be a JAX random key"),
    "a flat sample": (
        lambda: ksivi.metrics.ksd(jnp.ones(5), lambda x: -x),
        r"x must be an array of shape \(n, d\)",
    ),
    "an integer sample": (
        lambda: ksivi.metrics.mmd(jnp.ones((5, 2), int), ONES),
        "x must hold floating-point numbers",
    ),
    "a NaN sample": (
        lambda: ksivi.metrics.mmd(ONES * jnp.nan, ONES),
        "x must be finite, got 10 NaN",
    ),
    "another dim of samples": (
        lambda: ksivi.metrics.kl_knn(ONES, jnp.ones((5, 3))),
        r"y must be an array of shape \(n, 2\)",
    ),
    "k": (lambda: ksivi.metrics.kl_knn(ONES, ONES, k=5), "k must be less than len\\(x\\) = 5"),
    "flat": (
        lambda: ksivi.metrics.log_kde(ONES, ONES),
        "x must vary in all 2 dimensions, got a covariance of",
    ),
    "copies": (lambda: ksivi.metrics.kl_knn(ONES, ONES, k=2), "copies of a point"),
    "one sample": (lambda: ksivi.metrics.ksd(ONES[:1], lambda x: -x), "at least 2 samples"),
    "a banana": (lambda: ksivi.problems.banana("yellow"), "form must be one of"),
    "a diffusion": (
        lambda: ksivi.problems.diffusion(3),
        "dim must be a whole number of at least 5",
    ),
    "observations": (
        lambda: ksivi.problems.diffusion(50, observations=jnp.ones(3)),
        r"observations must be real numbers of shape \(10,\)",
    ),
    "a data file": (
        lambda: ksivi.problems.waveform("nowhere.data"),
        "there is no file nowhere.data",
    ),
    "a posterior file": (
        lambda: ksivi.load("nowhere.safetensors"),
        "there is no file nowhere.safetensors",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_the_reason(name):
    call, match = BAD[name]
    with pytest.raises(ValueError, match=match):
        call()
