import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

KEY = jax.random.key(0)
X = jnp.array([0.3, -1.2])


def log_density(x):
    return -0.5 * x[0] ** 2 - jnp.cosh(x[1] - x[0])


def log_prior(x):
    return -0.5 * jnp.sum(x**2)


def log_likelihood(x, batch):
    return -0.5 * jnp.sum((batch["y"] - batch["x"] @ x) ** 2)


DATA = {"x": jax.random.normal(KEY, (12, 2)), "y": jnp.arange(12.0)}


def test_value_and_score():
    target = ksivi.Target(log_density, dim=2)
    value, score = target.log_density_and_score(X)
    np.testing.assert_allclose(value, log_density(X), rtol=1e-6)
    np.testing.assert_allclose(score, jax.grad(log_density)(X), rtol=1e-6)
    np.testing.assert_allclose(target.score(X), score, rtol=1e-6)


def test_a_given_score_is_used():
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2, score=lambda x: -x * (1 + 1e-5))
    np.testing.assert_allclose(target.score(X), -X * (1 + 1e-5), rtol=1e-7)


def test_from_data_is_the_whole_posterior():
    target = ksivi.Target.from_data(log_prior, log_likelihood, DATA, dim=2)
    np.testing.assert_allclose(
        target.log_density(X), log_prior(X) + log_likelihood(X, DATA), rtol=1e-6
    )
    assert not target.is_minibatched
    assert target.minibatch(KEY) is target


def test_minibatches_scale_the_likelihood_alone_and_are_unbiased(x64):
    data = jax.tree.map(lambda a: a.astype(float), DATA)
    target = ksivi.Target.from_data(log_prior, log_likelihood, data, dim=2, batch_size=3)
    rows = jnp.array([1, 5, 5])
    batch = jax.tree.map(lambda a: a[rows], data)
    expected = log_prior(X) + 4 * log_likelihood(X, batch)
    np.testing.assert_allclose(
        target.on_rows(rows).log_density(X.astype(float)), expected, rtol=1e-6
    )
    scores = jax.vmap(lambda key: target.minibatch(key).score(X.astype(float)))(
        jax.random.split(KEY, 20_000)
    )
    error = scores.std(0) / np.sqrt(len(scores))
    assert np.all(np.abs(scores.mean(0) - target.score(X.astype(float))) < 4 * error)


def test_pytrees_of_parameters():
    example = {"b": jnp.zeros((2, 2)), "a": jnp.zeros(())}
    target = ksivi.Target.from_pytree(
        lambda p: -(p["a"] ** 2) - jnp.sum(p["b"] * jnp.arange(4.0).reshape(2, 2)), example
    )
    assert target.dim == 5
    assert target.layout == (("a", ()), ("b", (2, 2)))
    np.testing.assert_allclose(target.score(jnp.arange(1.0, 6.0)), [-2, 0, -1, -2, -3])


def test_draws_have_the_targets_names_and_shapes():
    example = {"b": jnp.zeros((2, 2)), "a": jnp.zeros(())}
    target = ksivi.Target.from_pytree(lambda p: -(p["a"] ** 2) - jnp.sum(p["b"] ** 2), example)
    fit = ksivi.train(
        KEY, target, ksivi.SemiImplicit.location_scale(5), ksivi.KSIVI(num_samples=5), num_steps=2
    )
    draws = fit.posterior.draws(KEY, 7)
    assert {name: draw.shape for name, draw in draws.items()} == {"a": (7,), "b": (7, 2, 2)}
    np.testing.assert_array_equal(draws["b"].reshape(7, 4), fit.posterior.sample(KEY, 7)[:, 1:])


@pytest.mark.parametrize("scale", [jnp.array([2.0, 0.5]), jnp.array([[2.0, 0.0], [1.0, 0.5]])])
def test_whitened_views(scale, x64):
    """Compares with the density of u, x = loc + scale u, and its score by autodiff."""
    loc, u = jnp.array([1.0, -1.0]), X.astype(float)
    view = ksivi.Target(log_density, dim=2).whitened(loc, scale.astype(float))
    matrix = np.diag(scale) if scale.ndim == 1 else np.asarray(scale, float)
    expected = log_density(loc + matrix @ u) + np.log(abs(np.linalg.det(matrix)))
    np.testing.assert_allclose(view.log_density(u), expected, rtol=1e-7)
    np.testing.assert_allclose(view.score(u), jax.grad(view.log_density)(u), rtol=1e-7)
    np.testing.assert_allclose(view.to_original(u), loc + matrix @ u, rtol=1e-7)


def test_whitening_composes(x64):
    scales = [jnp.array([2.0, 0.5]), jnp.array([[2.0, 0.0], [1.0, 0.5]])]
    u, loc = X.astype(float), jnp.array([1.0, -1.0])
    for first in scales:
        for second in scales:
            once = ksivi.Target(log_density, dim=2).whitened(loc, first)
            twice = once.whitened(2 * loc, second)
            inner = 2 * loc + (second * u if second.ndim == 1 else second @ u)
            np.testing.assert_allclose(twice.to_original(u), once.to_original(inner), rtol=1e-7)


def test_tempered_views():
    target = ksivi.Target(log_density, dim=2)
    np.testing.assert_allclose(
        target.tempered(0.3).log_density(X), 0.3 * target.log_density(X), rtol=1e-6
    )
    np.testing.assert_allclose(
        target.tempered(0.5).tempered(0.5).score(X), 0.25 * target.score(X), rtol=1e-6
    )


def test_values_of_a_score_only_target_are_refused():
    target = ksivi.Target.from_score(lambda x: -x, dim=2)
    assert not target.has_log_density
    np.testing.assert_allclose(target.score(X), -X)
    with pytest.raises(ValueError, match="only a score"):
        target.log_density(X)
