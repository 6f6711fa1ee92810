"""The normals that training on a CPU draws."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend import random as jax_generators
from scipy import stats

import ksivi
from ksivi._core import normals
from ksivi._core.closures import Structural
from ksivi.training._step import Setup, split_family

KEY = jax.random.key(7)


pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU draws JAX's normals")


def quick(key, shape, dtype=jnp.float32):
    return normals.box_muller(key, shape, dtype)


def test_words_are_those_of_jaxs_threefry():
    counts = jnp.arange(1_000, dtype=jnp.uint32)
    key = jax.random.key_data(KEY)
    truth = jax_generators.threefry2x32_p.bind(key[0], key[1], jnp.ones_like(counts), counts)
    for word, true in zip(normals._threefry(key, counts), truth, strict=True):
        np.testing.assert_array_equal(word, true)


def test_numbers_are_box_and_mullers():
    """Against the formula in double precision, at words that reach every axis and both ends of the radius."""
    a = np.array([0, 1, 2**31, 2**32 - 1, 12_345, 2**30, 77, 2**20], np.uint32)
    b = np.concatenate(
        [np.arange(4, dtype=np.uint32) + (np.uint32(k) << 9) for k in (0, 123_456, 2**23 - 1)]
    )
    a, b = np.meshgrid(a, b)
    found = np.asarray(normals._pairs(jnp.asarray(a.ravel()), jnp.asarray(b.ravel()))).reshape(
        a.shape
    )
    radius = np.sqrt(-2 * np.log(np.minimum((a.astype(np.float32).astype(float) + 0.5) / 2**32, 1)))
    angle = ((b >> 9) + 0.5) * 2.0**-23 * np.pi / 2 - np.pi / 4
    truth = (
        radius
        * np.where(b & 2, -1, 1)
        * np.where(b & 1, 1j * np.exp(-1j * angle), np.exp(1j * angle))
    )
    np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,), (4, 0)])
def test_shapes(shape):
    assert quick(KEY, shape).shape == shape


def test_batches_of_keys_give_what_each_key_gives():
    keys = jax.random.split(KEY, 4)
    together = jax.vmap(lambda key: quick(key, (7,)))(keys)
    np.testing.assert_array_equal(together, jnp.stack([quick(key, (7,)) for key in keys]))


def test_normals_are_normal():
    draws = np.asarray(
        jax.vmap(lambda t: quick(jax.random.fold_in(KEY, t), (1_000,)))(jnp.arange(300))
    )
    flat = draws.ravel()
    assert stats.kstest(flat, "norm").pvalue > 0.01
    assert stats.kstest(flat[np.abs(flat) > 3], lambda x: _beyond(3, x)).pvalue > 0.01
    correlations = np.corrcoef(draws)[~np.eye(300, dtype=bool)]
    assert abs(np.std(correlations) * np.sqrt(1_000) - 1) < 0.05


def _beyond(at, x):
    """The distribution function of normals that are farther out than `at`."""
    tail = stats.norm.cdf(-at)
    below = np.minimum(stats.norm.cdf(x), tail)
    return (below + np.maximum(stats.norm.cdf(x) - stats.norm.cdf(at), 0)) / (2 * tail)


def test_the_four_parts_of_an_array_are_independent():
    """Real and imaginary parts of the first and the second half of the blocks, and their squares."""
    parts = np.asarray(quick(KEY, (4, 100_000)))
    for a in (parts, parts**2):
        correlations = np.corrcoef(a)[~np.eye(4, dtype=bool)]
        assert np.all(np.abs(correlations) < 4 / np.sqrt(100_000))


def test_outside_of_training_normals_are_jaxs():
    family = ksivi.SemiImplicit.location_scale(10)
    xi_key = jax.random.split(KEY)[1]
    np.testing.assert_array_equal(family.noise(KEY, 1)[1], jax.random.normal(xi_key, (1, 10)))
    fast = family.with_normals(normals.fastest_normal("cpu"))
    np.testing.assert_array_equal(fast.noise(KEY, 1)[1], quick(xi_key, (1, 10)))
    assert not np.any(fast.noise(KEY, 1)[1] == family.noise(KEY, 1)[1])
    assert normals.fastest_normal("gpu") is jax.random.normal


def test_a_batch_of_keys_is_refused_as_by_jax():
    with pytest.raises(ValueError, match="single key"):
        quick(jax.random.split(KEY, 2), (8,))


def test_double_precision_and_other_generators_are_jaxs(x64):
    np.testing.assert_array_equal(
        quick(KEY, (10,), jnp.float64), jax.random.normal(KEY, (10,), jnp.float64)
    )
    other = jax.random.key(0, impl="rbg")
    np.testing.assert_array_equal(quick(other, (10,)), jax.random.normal(other, (10,), jnp.float32))


def test_steps_draw_them_and_samples_do_not(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        normals, "_pairs", lambda a, b: drawn.append(len(a)) or jnp.zeros(len(a), jnp.complex64)
    )
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3, hidden=(8,))
    target, optimizer = (
        ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2),
        Structural(optax.adam(1e-2)),
    )
    setup = Setup(
        target, ksivi.KSIVI(num_samples=16), split_family(family)[1], None, None, optimizer
    )
    jax.eval_shape(lambda key: setup.draw(key, target, family), KEY)
    assert sorted(drawn) == [16, 24]
    jax.eval_shape(lambda key: family.sample(key, 5), KEY)
    assert len(drawn) == 2
