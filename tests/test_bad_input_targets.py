"""Every message about a target names the argument, what came and what was expected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

normal = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
ONES = jnp.ones((5, 2))


def _sum(x, rows):
    return -jnp.sum((rows["a"] - x[None]) ** 2)


def _broken(n):
    """NaN in every third row, so that a first minibatch has some."""
    return np.where(np.arange(n)[:, None] % 3 == 2, np.nan, np.ones((n, 2)))


def target():
    return ksivi.Target(normal, dim=2)


BAD = {
    "a vector log density": (
        lambda: ksivi.Target(lambda x: -(x**2), dim=2),
        r"log_density must return one .* shape \(2,\)",
    ),
    "an integer log density": (
        lambda: ksivi.Target(lambda x: 3, dim=2),
        "log_density must return one floating scalar",
    ),
    "NaN at the start": (
        lambda: ksivi.Target(lambda x: normal(x) * jnp.nan, dim=2),
        "finite at the test point, got nan",
    ),
    "-inf at the start": (
        lambda: ksivi.Target(lambda x: jnp.log(x[0]), dim=2),
        "finite at the test point, got -inf.* as test_point=; if .*from_pytree with supports=",
    ),
    "-inf at the example": (
        lambda: ksivi.Target.from_pytree(lambda p: jnp.log(p["a"]), {"a": 0.0}),
        "got -inf .* example is the test point, .* supports=",
    ),
    "an infinite score alone": (
        lambda: ksivi.Target.from_score(lambda x: 1 / x, dim=2),
        r"score must be finite at the test point, got \[inf, inf\] .* test_point=",
    ),
    "a log density that returns nothing": (
        lambda: ksivi.Target(lambda x: None, dim=2),
        "log_density must return one floating scalar for one point, got None",
    ),
    "NumPy in a log density": (
        lambda: ksivi.Target(lambda x: -np.sum(np.abs(x)), dim=2),
        "TracerArrayConversionError: .*; use jax.numpy instead of NumPy$",
    ),
    "a branch in a log density": (
        lambda: ksivi.Target(lambda x: x[0] if x[0] < 0 else -x[0], dim=2),
        "TracerBoolConversionError: .*; use jnp.where or jax.lax.cond instead of if$",
    ),
    "a missing entry": (
        lambda: ksivi.Target(lambda x: {}["scale"], dim=2),
        r"failed at a point of shape \(2,\): KeyError: 'scale'$",
    ),
    "NaN in data": (
        lambda: ksivi.Target.from_data(normal, _sum, {"a": ONES.at[3].set(jnp.nan)}, 2),
        r"log_likelihood\(x, row\) is nan in row 3 of 5, counted from 0; data: 'a' has NaN",
    ),
    "NaN in rows of the host": (
        lambda: ksivi.Target.from_data(
            normal, _sum, ksivi.Rows({"a": _broken(3_000)}, block_size=7, pool=2), 2, batch_size=50
        ),
        r"log_likelihood\(x, row\) is nan in rows 2, 5, 8 and .* of 3,000",
    ),
    "impossible data": (
        lambda: ksivi.Target.from_data(
            normal, lambda x, b: jnp.sum(jnp.log(b)) + x[0], jnp.array([1.0, 0.0, 2.0, 0.0]), 2
        ),
        r"log_likelihood\(x, row\) is -inf in rows 1 and 3 of 4, counted from 0$",
    ),
    "-inf of a prior": (
        lambda: ksivi.Target.from_data(
            lambda x: jnp.sum(jnp.log(x)), lambda x, b: jnp.sum(x), ONES, 2
        ),
        r"got -inf at \[0, 0\]: log_prior\(x\) is -inf there; .* test_point=",
    ),
    "no data": (
        lambda: ksivi.Target.from_data(normal, lambda x, b: 0.0, {}, 2),
        r"data must hold at least one array of numbers, got \{\}",
    ),
    "lists for data": (
        lambda: ksivi.Target.from_data(normal, lambda x, b: 0.0, {"a": [1.0, 2.0]}, 2),
        "make lists into arrays with numpy.array",
    ),
    "text in rows of the host": (
        lambda: ksivi.Target.from_data(
            normal, lambda x, b: 0.0, ksivi.Rows(np.array(["a", "b"])), 2, batch_size=1
        ),
        "arrays must hold numbers, got an array of shape",
    ),
    "no Parquet file": (
        lambda: ksivi.Rows.parquet("nowhere.parquet"),
        "path must be a Parquet file, got 'nowhere.parquet'",
    ),
    "an infinite score": (
        lambda: ksivi.Target(lambda x: jnp.sqrt(x[0]), dim=1),
        "score, the gradient of log_density, must be finite at the test point",
    ),
    "a failing log density": (
        lambda: ksivi.Target(lambda x: normal(x @ jnp.ones((3, 3))), dim=2),
        r"failed at a point of shape \(2,\)",
    ),
    "no function": (lambda: ksivi.Target(3.0, dim=2), "log_density must be a function, got float"),
    "dim 0": (
        lambda: ksivi.Target(normal, dim=0),
        "dim must be a whole number of at least 1, got 0",
    ),
    "dim 2.0": (
        lambda: ksivi.Target(normal, dim=2.0),
        r"dim must be a whole number of at least 1, got 2.0 \(float\)",
    ),
    "a score of another shape": (
        lambda: ksivi.Target(normal, dim=2, score=lambda x: x[:1]),
        r"score must return shape \(2,\), .* got shape \(1,\)",
    ),
    "a score-only of another shape": (
        lambda: ksivi.Target.from_score(lambda x: jnp.sum(x), dim=2),
        r"score must return shape \(2,\)",
    ),
    "a score of the wrong sign": (
        lambda: ksivi.Target(normal, dim=2, score=lambda x: x),
        "score disagrees with the gradient",
    ),
    "names": (lambda: ksivi.Target(normal, dim=2, names=["a"]), "names must be 2 different names"),
    "a test point": (
        lambda: ksivi.Target(normal, dim=2, test_point=jnp.zeros(3)),
        "test_point must be 2 floating numbers",
    ),
    "ragged data": (
        lambda: ksivi.Target.from_data(normal, lambda x, b: 0.0, {"a": ONES, "b": ONES[:3]}, 2),
        "same number of rows",
    ),
    "a large batch": (
        lambda: ksivi.Target.from_data(normal, lambda x, b: jnp.sum(x), ONES, 2, batch_size=9),
        "batch_size must be at most the 5 rows",
    ),
    "an integer pytree": (
        lambda: ksivi.Target.from_pytree(lambda p: 0.0, {"a": 1}),
        "must be floating",
    ),
    "an empty pytree": (
        lambda: ksivi.Target.from_pytree(lambda p: 0.0, {}),
        "example must hold at least one array",
    ),
    "a point of another shape": (
        lambda: target().score(jnp.ones(3)),
        r"x must be one point of shape \(2,\), got shape \(3,\)",
    ),
    "an integer point": (
        lambda: target().score(jnp.arange(2)),
        "x must hold floating-point numbers, got dtype int32",
    ),
    "a whitening shape": (
        lambda: target().whitened(jnp.zeros(3), jnp.ones(3)),
        r"loc must have shape \(2,\)",
    ),
    "a singular scale": (
        lambda: target().whitened(jnp.zeros(2), jnp.zeros(2)),
        "scale must be finite and invertible",
    ),
    "a temperature": (
        lambda: target().tempered(-1.0),
        "inverse_temperature must be one positive number",
    ),
    "a base of a tempered target": (
        lambda: target().tempered(0.5).tempered(0.5, base_scale=1.0),
        "tempered already",
    ),
    "an integer score": (
        lambda: ksivi.Target.from_score(lambda x: jnp.zeros(2, int), 2),
        "floating numbers",
    ),
    "a list of numbers": (
        lambda: target().score([1.0, 2.0]),
        r"x must be an array of shape \(2,\)",
    ),
    "colliding names": (
        lambda: ksivi.Target.from_pytree(lambda p: 0.0, {"a": {"b": 1.0}, "a.b": 1.0}),
        "example must have different names",
    ),
    "text data": (
        lambda: ksivi.Target.from_data(normal, lambda x, b: 0.0, {"x": "abc"}, 2),
        "data must hold arrays",
    ),
    "rows of no data": (lambda: target().on_rows(jnp.arange(2)), "rows must be None"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_the_reason(name):
    call, match = BAD[name]
    with pytest.raises(ValueError, match=match):
        call()


def test_predictive_of_a_log_density_says_how_to_simulate():
    of = ksivi.Target.from_data(normal, _sum, {"a": ONES}, 2)
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(2), of)
    words = r"needs a model that simulates data, .* simulate\(key, x\) .* jax\.vmap\(simulate\)\("
    with pytest.raises(ValueError, match=words):
        posterior.predictive(jax.random.key(0), 3)
    # What the message says to write.
    simulate = lambda key, x: x + jax.random.normal(key, (2,))  # noqa: E731
    key, n = jax.random.key(0), 3
    found = jax.vmap(simulate)(jax.random.split(key, n), posterior.sample(key, n))
    assert found.shape == (3, 2)
