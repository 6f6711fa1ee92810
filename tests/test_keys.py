"""Fast keys: JAX's generator with both of its words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ksivi


def test_bits_are_both_words_of_jaxs_blocks():
    """Against JAX's own bits, which are the two words of a block, by exclusive or."""
    bits = jax.random.bits(ksivi.fast_key(7), (10,))
    np.testing.assert_array_equal(bits[:5] ^ bits[5:], jax.random.bits(jax.random.key(7), (5,)))


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
def test_shapes(shape):
    assert jax.random.normal(ksivi.fast_key(0), shape).shape == shape


def test_batches_of_keys_give_what_each_key_gives():
    keys = jax.random.split(ksivi.fast_key(0), 4)
    together = jax.vmap(lambda key: jax.random.normal(key, (7,)))(keys)
    np.testing.assert_array_equal(together, jnp.stack([jax.random.normal(key, (7,)) for key in keys]))


def test_normals_are_normal():
    draws = jax.vmap(lambda t: jax.random.normal(jax.random.fold_in(ksivi.fast_key(3), t), (1_000,)))(jnp.arange(100))
    assert stats.kstest(np.asarray(draws).ravel(), "norm").pvalue > 0.01
    correlations = np.corrcoef(np.asarray(draws))[~np.eye(100, dtype=bool)]
    assert abs(np.std(correlations) * np.sqrt(1_000) - 1) < 0.1


def test_training_does_not_depend_on_chunks():
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3, hidden=(8,))
    runs = [
        ksivi.train(ksivi.fast_key(1), target, family, ksivi.KSIVI(num_samples=16), num_steps=20, chunk_size=size)
        for size in (4, 20)
    ]
    np.testing.assert_array_equal(runs[0].history["loss"], runs[1].history["loss"])


def test_a_bad_seed_is_named():
    with pytest.raises(ValueError, match="seed must be a whole number"):
        ksivi.fast_key(-1)
