"""Models on new data of the same shapes: nothing is compiled again, and every result is the new data's."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest
from numpyro.infer.util import potential_energy

import ksivi
from known import KEY
from ksivi.targets import Evaluator


@contextlib.contextmanager
def compilations():
    """A list of the programs that are compiled inside the block, or loaded from a cache."""
    found = []

    def listen(event, _, **about):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(about)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def line(x, y, sigma=1.0):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]))
    numpyro.sample("y", dist.Normal(slope[0] + slope[1] * x, sigma), obs=y)


def groups(y, group, n):
    with numpyro.plate("groups", n):
        theta = numpyro.sample("theta", dist.Normal(0, 1.5))
    numpyro.sample("y", dist.Normal(theta[group], 1.0), obs=y)


def lists(x, y, layers):
    line(jnp.array(x) + jnp.zeros(layers[0])[0], jnp.array(y))


def by_name(data):
    line(data["x"] + jnp.zeros(data["n"]), data["y"], data["sigma"])


def frame_line(frame):
    line(frame["x"], frame["y"])


def bounded(y, low, high):
    share = numpyro.sample("share", dist.Uniform(low, high))
    numpyro.sample("y", dist.Normal(share, 2 * high), obs=y)


def numbers(seed):
    x = np.random.default_rng(seed).normal(size=12)
    return x, np.random.default_rng(seed + 9).normal(x + seed, 1.0)


def columns(seed):
    x, y = numbers(seed)
    return pandas.DataFrame({"x": x, "y": y, "who": list("abcdefghijkl"), "many": seed})


GROUP = np.arange(12) % 3
NEW_DATA = {
    "arrays": lambda s: (line, numbers(s)),
    "size": lambda s: (groups, (numbers(s)[1], GROUP, 3)),
    "size by NumPy": lambda s: (groups, (numbers(s)[1], GROUP, GROUP.max() + 1)),
    "float": lambda s: (line, (*numbers(s), 1.0 + s)),
    "bounds": lambda s: (bounded, (numbers(s)[1], -1.0 - s, 2.0 + s)),
    "lists": lambda s: (lists, (*(x.tolist() for x in numbers(s)), [4, 4])),
    "series": lambda s: (line, (columns(s)["x"], columns(s)["y"])),
    "frame": lambda s: (frame_line, (columns(s),)),
    "dict": lambda s: (by_name, (dict(zip("xy", numbers(s), strict=True), n=12, sigma=0.5 + s),)),
    "partial": lambda s: (functools.partial(line, numbers(s)[0]), numbers(s)[1:]),
}


def evaluate(target):
    return Evaluator(target)(0.3 * np.ones((1, target.dim)))[0][0]


def numpyros_own(model, args, dim):
    """NumPyro's log density at that point, from the arguments as they are."""
    if isinstance(args[0], pandas.DataFrame):
        args = ({name: args[0][name].to_numpy() for name in "xy"},)
    args = jax.tree.map(lambda leaf: leaf.to_numpy() if hasattr(leaf, "to_numpy") else leaf, args)
    name = {"groups": "theta", "bounded": "share"}.get(getattr(model, "__name__", ""), "slope")
    point = {name: 0.3 * jnp.ones(() if name == "share" else dim)}
    return -potential_energy(model, args, {}, point)


@pytest.mark.parametrize("name", NEW_DATA)
def test_new_data_compile_nothing(name):
    evaluate(ksivi.from_numpyro(NEW_DATA[name](0)[0], *NEW_DATA[name](0)[1]))
    model, args = NEW_DATA[name](1)
    with compilations() as found:
        target = ksivi.from_numpyro(model, *args)
        value = evaluate(target)
    assert not found
    np.testing.assert_allclose(value, numpyros_own(model, args, target.dim), rtol=1e-5)


def test_a_second_fit_compiles_nothing():
    """Not even for the table of draws."""
    for seed in (0, 1):
        model, args = NEW_DATA["dict"](seed)
        with compilations() as found:
            fit = ksivi.fit(KEY, ksivi.from_numpyro(model, *args), progress=False)
            mean = fit.posterior.draws(KEY, 4_000)["slope"].mean(axis=0)
        assert fit.diagnostics.answer == "a Gaussian"
    assert not found
    x, y = numbers(1)
    design = np.stack([np.ones(12), x], axis=1)
    exact = np.linalg.solve(design.T @ design + 1.5**2 / 4 * np.eye(2), design.T @ y)
    np.testing.assert_allclose(mean, exact, atol=0.1)


def test_another_size_is_another_program():
    for n in (3, 5):
        y, group = numbers(n)[1], np.arange(12) % n
        target = ksivi.from_numpyro(groups, y, group, n)
        assert target.dim == n
        own = numpyros_own(groups, (y, group, n), n)
        np.testing.assert_allclose(evaluate(target), own, rtol=1e-5)


def branches(y, width):
    prior = dist.Normal(0, width) if width > 1 else dist.Laplace(0, width)
    numpyro.sample("y", dist.Normal(numpyro.sample("mean", prior), 1), obs=y)


def from_dates(y, first, last):
    """The days between two Julian dates, which single precision cannot tell from zero."""
    mean = numpyro.sample("mean", dist.Normal(0, last - first))
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


@pytest.mark.parametrize(
    ("model", "plain", "prior"),
    [
        (branches, (0.5,), dist.Laplace(0, 0.5)),
        (branches, (2.0,), dist.Normal(0, 2)),
        (from_dates, (2459000.30, 2459000.35), dist.Normal(0, 0.05)),
        (from_dates, (2459000.30, 2459000.55), dist.Normal(0, 0.25)),
    ],
)
def test_floats_that_cannot_be_arrays_stay_as_they_are(model, plain, prior):
    y = numbers(0)[1]
    exact = prior.log_prob(0.1) + dist.Normal(0.1, 1).log_prob(y).sum()
    target = ksivi.from_numpyro(model, y, *plain)
    np.testing.assert_allclose(target.log_density(jnp.full(1, 0.1)), exact, rtol=1e-4)
