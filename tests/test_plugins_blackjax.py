"""ksivi as a variational algorithm of BlackJAX: its interface, its steps, and what it finds."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi.plugins import BlackJAXInfo

base = pytest.importorskip("blackjax.base", reason="BlackJAX is not installed")
KEY = jax.random.key(0)
START = {"a": jnp.array([1.0, -2.0]), "b": jnp.array(0.5)}


def logdensity(position):
    """Two correlated numbers around 3, and one around −1, far narrower."""
    first, second = position["a"] - 3.0
    correlated = (first**2 + second**2 - 1.6 * first * second) / (1 - 0.8**2)
    return -0.5 * correlated - 0.5 * ((position["b"] + 1.0) / 0.1) ** 2


def run(algorithm, state, num_steps, key=KEY):
    """The loop of BlackJAX's tutorials."""

    def one_step(state, key):
        return algorithm.step(key, state)

    return jax.jit(lambda state: jax.lax.scan(one_step, state, jax.random.split(key, num_steps)))(
        state
    )


def test_it_is_an_algorithm_of_blackjax_over_pytrees():
    algorithm = ksivi.plugins.blackjax(logdensity)
    assert isinstance(algorithm, base.VIAlgorithm)
    state = algorithm.init(START)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    after, info = jax.jit(algorithm.step)(KEY, state)
    assert isinstance(info, BlackJAXInfo)
    assert np.isfinite(info.loss)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    draws = algorithm.sample(KEY, after, 7)
    assert {name: x.shape for name, x in draws.items()} == {"a": (7, 2), "b": (7,)}


def test_a_scan_equals_single_steps():
    algorithm = ksivi.plugins.blackjax(logdensity, ksivi.KSIVI(num_samples=10))
    scanned, infos = run(algorithm, algorithm.init(START), 3)
    state = algorithm.init(START)
    for key in jax.random.split(KEY, 3):
        state, info = algorithm.step(key, state)
    assert infos.loss.shape == (3,)
    np.testing.assert_allclose(infos.loss[-1], info.loss, rtol=1e-4)
    for one, other in zip(jax.tree.leaves(scanned), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_a_step_is_a_training_step_of_ksivi():
    """The same family, objective and random numbers give what `ksivi.train` gives."""
    family = ksivi.SemiImplicit.mlp(KEY, 2, 3, hidden=(8,))
    objective = ksivi.KSIVI(num_samples=20)
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    fit = ksivi.train(KEY, target, family, objective, num_steps=3, learning_rate=1e-2)
    algorithm = ksivi.plugins.blackjax(
        lambda x: -0.5 * jnp.sum(x**2), objective, family, optimizer=optax.adam(1e-2)
    )
    state = algorithm.init(jnp.zeros(2))
    step_key = jax.random.split(KEY, 4)[3]  # as `train` splits its key
    losses = []
    for t in range(3):
        state, info = jax.jit(algorithm.step)(jax.random.fold_in(step_key, t), state)
        losses.append(float(info.loss))
    np.testing.assert_allclose(losses, fit.history["loss"], rtol=1e-3)
    ours = algorithm.sample(KEY, state, 5)
    np.testing.assert_allclose(ours, fit.posterior.family.sample(KEY, 5), rtol=1e-3, atol=1e-4)


def test_all_three_functions_can_be_mapped_and_compiled():
    algorithm = ksivi.plugins.blackjax(logdensity)
    starts = jax.tree.map(lambda x: jnp.stack([x, x + 1.0]), START)
    states = jax.vmap(algorithm.init)(starts)
    states, infos = jax.vmap(algorithm.step)(jax.random.split(KEY, 2), states)
    assert infos.loss.shape == (2,)
    draws = jax.jit(jax.vmap(lambda key, state: algorithm.sample(key, state, 4)))(
        jax.random.split(KEY, 2), states
    )
    assert draws["a"].shape == (2, 4, 2)
    # The draws start around the position.
    np.testing.assert_allclose(draws["a"][1].mean() - draws["a"][0].mean(), 1.0, atol=1.5)


def test_it_finds_a_far_and_correlated_target():
    algorithm = ksivi.plugins.blackjax(logdensity, optimizer=optax.adam(3e-3))
    state, infos = run(algorithm, algorithm.init(START, jax.random.key(1)), 3_000)
    draws = algorithm.sample(jax.random.key(2), state, 20_000)
    np.testing.assert_allclose(draws["a"].mean(axis=0), [3.0, 3.0], atol=0.15)
    np.testing.assert_allclose(draws["b"].mean(), -1.0, atol=0.02)
    assert float(draws["b"].std()) == pytest.approx(0.1, rel=0.15)
    assert float(jnp.corrcoef(draws["a"].T)[0, 1]) == pytest.approx(0.8, abs=0.06)
    assert float(infos.stein_ratio[-200:].mean()) == pytest.approx(1.0, abs=0.1)


def test_random_keys_of_the_old_style_are_taken():
    algorithm = ksivi.plugins.blackjax(logdensity, ksivi.KSIVI(num_samples=4))
    state, _ = jax.jit(algorithm.step)(jax.random.PRNGKey(0), algorithm.init(START))
    assert algorithm.sample(jax.random.PRNGKey(1), state, 2)["b"].shape == (2,)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: ksivi.plugins.blackjax(3), "logdensity_fn must be a function, got int"),
        (lambda: ksivi.plugins.blackjax(logdensity, "kl"), "objective must be one of ksivi's"),
        (lambda: ksivi.plugins.blackjax(logdensity, family=3), "family must be a ksivi.SemiImp"),
        (lambda: ksivi.plugins.blackjax(logdensity, optimizer=0.1), "optimizer must be an Optax"),
        (
            lambda: ksivi.plugins.blackjax(logdensity).init({"a": jnp.arange(2)}),
            "position must be floating numbers, or a dict",
        ),
        (
            lambda: ksivi.plugins.blackjax(lambda x: jnp.log(x[0])).init(jnp.zeros(1)),
            "logdensity_fn failed at position: .* must be finite at the test point, got -inf",
        ),
        (
            lambda: ksivi.plugins.blackjax(
                logdensity, family=ksivi.SemiImplicit.location_scale(2)
            ).init(START),
            "family must have the target's dim 3, got dim 2",
        ),
        (
            lambda: ksivi.plugins.blackjax(logdensity).init(START, rng_key=3),
            "rng_key must be a JAX random key",
        ),
    ],
)
def test_bad_arguments_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()
