"""Small runs of `train`, for the tests of training and of its trouble.

One family and one size of chunk for all of them: a program of another shape takes seconds to compile.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ksivi

KEY = jax.random.key(0)
MEAN, SD = jnp.array([1.0, -2.0]), jnp.array([0.5, 2.0])


def gaussian(x):
    return -0.5 * jnp.sum(((x - MEAN) / SD) ** 2)


def family(key=KEY, dim=2):
    return ksivi.SemiImplicit.mlp(key, dim=dim, mixing_dim=3, hidden=(8,))


def train(key=KEY, target=None, start=None, objective=None, **options):
    options = {"num_steps": 60, "chunk_size": 20, "optimizer": optax.adam(1e-2), **options}
    target = ksivi.Target(gaussian, dim=2) if target is None else target
    objective = ksivi.KSIVI(num_samples=20) if objective is None else objective
    return ksivi.train(key, target, family() if start is None else start, objective, **options)


def same(a, b):
    """Whether all arrays of two pytrees are equal to the last bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)
