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


SCALE, Y = 0.5, numbers(5)[1]


def distance(x):
    """A helper that reads a global."""
    return jnp.sum((Y - x[0]) ** 2)


def plain_targets(seed):
    """Log densities that read data from around them, as users write them. Each is a new function."""
    x, y = numbers(seed)
    data = {"x": x, "y": jnp.asarray(y)}
    width, group = 1.0 + seed, (np.arange(12) + seed) % 2
    return {
        "arrays": lambda b: -jnp.sum((y - b[0] - b[1] * x) ** 2),
        "dict": lambda b: -jnp.sum((data["y"] - b[0] - b[1] * data["x"]) ** 2),
        "float": lambda b: -jnp.sum((y - b[0] - b[1] * x) ** 2) / width,
        "arithmetic of floats": lambda b: -jnp.sum((y - b[0]) ** 2) / (2 * SCALE**2) - b[1] ** 2,
        "groups": lambda b: -jnp.sum((y - b[group]) ** 2),
        "helper": lambda b: -distance(b) - jnp.sum((y[:3] - b[1]) ** 2),
        "scan": lambda b: jax.lax.scan(
            lambda c, row: (c - (row - b[0]) ** 2, None), -(b[1] ** 2), y
        )[0],
        "default": lambda b, y=y: -jnp.sum((y - b[0]) ** 2) - b[1] ** 2,
    }


@pytest.mark.parametrize("name", plain_targets(0))
def test_a_new_function_on_new_data_compiles_nothing(name):
    evaluate(ksivi.Target(plain_targets(0)[name], dim=2))
    function = plain_targets(1)[name]
    with compilations() as found:
        value = evaluate(ksivi.Target(function, dim=2))
    assert not found
    np.testing.assert_allclose(value, function(jnp.full(2, 0.3)), rtol=1e-5)


def test_a_pytree_on_new_data_compiles_nothing():
    def target(seed):
        y = numbers(seed)[1]
        log_density = lambda p: -(p["a"] ** 2) - jnp.sum((y - p["b"]) ** 2)  # noqa: E731
        return ksivi.Target.from_pytree(log_density, {"a": jnp.zeros(()), "b": jnp.zeros(())})

    evaluate(target(0))
    with compilations() as found:
        value = evaluate(target(1))
    assert not found
    np.testing.assert_allclose(value, -0.09 - np.sum((numbers(1)[1] - 0.3) ** 2), rtol=1e-5)


COUNTS = []


def written(seed):
    """Functions that need the values, or more than them: they stay as they are, and right."""
    y = numbers(seed)[1]
    dates = 2459000.0 + 0.001 * np.arange(12) * (1 + seed)
    settings = Settings(1.0 + seed)
    return {
        "dates": lambda b: -jnp.sum((dates - dates.min() - b[0]) ** 2) * 1e4 - b[1] ** 2,
        "branches": lambda b: -jnp.sum(b**2) if y.mean() < 0.5 else -jnp.sum((b - 3) ** 2),
        "NumPy": lambda b: -jnp.sum((np.exp(y) - b[0]) ** 2) - b[1] ** 2,
        "object": lambda b: -jnp.sum((y - b[0]) ** 2) * settings.weight - b[1] ** 2,
        "list": lambda b: COUNTS.append(seed) or -jnp.sum((y - b[0]) ** 2) - b[1] ** 2,
        "host": lambda b: on_the_host(b, y),
    }


class Settings:
    def __init__(self, weight):
        self.weight = weight


def on_the_host(b, y):
    spread = jax.pure_callback(
        lambda _: np.float32(y.std()), jax.ShapeDtypeStruct((), "float32"), 0
    )
    return -jnp.sum(b**2) / jax.lax.stop_gradient(spread)


@pytest.mark.parametrize("name", written(0))
def test_functions_that_need_the_values_stay_right(name):
    for seed in (0, 1):
        function = written(seed)[name]
        target = ksivi.Target(function, dim=2)
        np.testing.assert_allclose(
            evaluate(target), function(jnp.full(2, 0.3)), rtol=1e-4, err_msg=str(seed)
        )


def test_a_changed_global_is_noticed():
    """Two functions of the same code, as a cell of a notebook makes them when it is run again."""
    space = {"jnp": jnp, "y": numbers(0)[1], "power": 2}
    values = []
    for changes in ({}, {"y": numbers(1)[1]}, {"power": 4}):
        space.update(changes)
        exec("f = lambda b: -jnp.sum((y - b[0]) ** power)", space)
        values.append(evaluate(ksivi.Target(space["f"], dim=1)))
        np.testing.assert_allclose(values[-1], space["f"](jnp.full(1, 0.3)), rtol=1e-5)
    assert len(set(values)) == 3
