"""Points are evaluated all at once, or one after another where that is quicker."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.targets import Evaluator
from ksivi.targets._evaluator import at_points, is_in_turn

ROWS, INPUTS, HIDDEN = 3_000, 3, 40
DIM = (INPUTS + 2) * HIDDEN


def rows(n=ROWS):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, INPUTS)).astype(np.float32)
    return {"x": x, "y": np.sin(x[:, 0]).astype(np.float32)}


def network(x, batch):
    """A layer of hidden units: an array of rows × units, larger than the data."""
    inner, bias, outer = jnp.split(x, [INPUTS * HIDDEN, (INPUTS + 1) * HIDDEN])
    hidden = jnp.tanh(batch["x"] @ inner.reshape(INPUTS, HIDDEN) + bias[None])
    return -0.5 * jnp.sum((batch["y"] - hidden @ outer) ** 2)


def linear(x, batch):
    return -0.5 * jnp.sum((batch["y"] - batch["x"] @ x[:INPUTS]) ** 2)


def target(likelihood=network, n=ROWS, dim=DIM):
    log_prior = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
    return ksivi.Target.from_data(log_prior, likelihood, rows(n), dim)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU evaluates all points at once")
def test_a_network_on_many_rows_is_evaluated_point_by_point():
    assert is_in_turn(target())
    assert not is_in_turn(target(n=500))
    assert not is_in_turn(target(linear))
    assert not is_in_turn(ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=DIM))
    assert Evaluator(target()).is_expensive
    assert not Evaluator(target(linear)).is_expensive


def test_both_ways_give_the_same_numbers():
    one, x = target(), 0.3 * np.random.default_rng(1).normal(size=(70, DIM))
    together = jax.vmap(one.log_density_and_score)(jnp.asarray(x, jnp.float32))
    in_turn = at_points(one, jnp.asarray(x, jnp.float32))
    from_host = Evaluator(one)(x)
    for other in (in_turn, from_host):
        np.testing.assert_allclose(other[0], together[0], rtol=1e-4)
        np.testing.assert_allclose(other[1], together[1], rtol=1e-3, atol=1e-2)


def test_arrays_of_inner_programs_count():
    scanned = lambda x, batch: jax.lax.scan(  # noqa: E731
        lambda total, _: (total + network(x, batch), None), 0.0, None, length=2
    )[0]
    assert is_in_turn(target(scanned)) == is_in_turn(target())
