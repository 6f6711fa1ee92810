"""Targets from host functions and PyTorch: the density, score and curvature equal JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

KEY = jax.random.key(0)


def log_density(x):
    """A banana, for JAX arrays and for tensors."""
    return -0.5 * (x[0] ** 2 + (x[1] - x[0] ** 2) ** 2) - 0.25 * x[2] ** 4


def value_and_gradient(x):
    bend = x[1] - x[0] ** 2
    return log_density(x), np.array([-x[0] + 2 * x[0] * bend, -bend, -(x[2] ** 3)])


def hessian_product(x, v):
    bend = x[1] - x[0] ** 2
    hessian = np.array(
        [[-1 + 2 * bend - 4 * x[0] ** 2, 2 * x[0], 0], [2 * x[0], -1, 0], [0, 0, -3 * x[2] ** 2]]
    )
    return hessian @ v


def by_callback():
    return ksivi.from_callback(value_and_gradient, 3, hessian_product=hessian_product)


def by_rows():
    rows = lambda x: tuple(map(np.stack, zip(*map(value_and_gradient, x), strict=True)))  # noqa: E731
    products = lambda x, v: np.stack(list(map(hessian_product, x, v)))  # noqa: E731
    return ksivi.from_callback(rows, 3, hessian_product=products, batched=True)


def by_torch():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return ksivi.from_torch(log_density, 3)


def by_torch_rows():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return ksivi.from_torch(lambda x: log_density(x.T), 3, batched=True)


@pytest.mark.parametrize("make_target", [by_callback, by_rows, by_torch, by_torch_rows])
def test_every_way_gives_the_same_density(make_target):
    target, truth = make_target(), ksivi.Target(log_density, 3)
    x = jax.random.normal(KEY, (2, 4, 3))
    every = lambda function: jax.jit(jax.vmap(jax.vmap(function)))  # noqa: E731
    for name in ("log_density", "score", "log_density_and_score"):
        found, expected = (every(getattr(one, name))(x) for one in (target, truth))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected
        )
    gradients = [every(jax.grad(one.log_density))(x) for one in (target, truth)]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-5)
    curvatures = [every(jax.jacrev(one.score))(x) for one in (target, truth)]
    np.testing.assert_allclose(*curvatures, rtol=1e-4, atol=1e-4)
    hessians = [every(jax.jacrev(jax.grad(one.log_density)))(x) for one in (target, truth)]
    np.testing.assert_allclose(*hessians, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make_target", [by_callback, by_torch])
@pytest.mark.parametrize(
    "objective",
    [
        ksivi.KSIVI(num_samples=10),
        ksivi.KSIVI(num_samples=10, log_density_weight=0.1),
        ksivi.SIVI(10, 10),
    ],
)
def test_training_takes_the_same_steps(make_target, objective):
    family = ksivi.SemiImplicit.mlp(KEY, dim=3, mixing_dim=3, hidden=(8,))
    fits = [
        ksivi.train(KEY, target, family, objective, num_steps=20, progress=False)
        for target in (make_target(), ksivi.Target(log_density, 3))
    ]
    np.testing.assert_allclose(*(fit.history["loss"] for fit in fits), rtol=1e-3, atol=1e-4)


def test_points_of_a_batch_come_in_one_call():
    calls = []

    def rows(x):
        calls.append(x.shape)
        return -0.5 * np.sum(x**2, axis=1), -x

    target = ksivi.from_callback(rows, 2, batched=True)
    calls.clear()
    jax.block_until_ready(jax.vmap(jax.vmap(target.score))(jnp.ones((3, 5, 2))))
    assert calls == [(15, 2)]


def test_without_curvature_sivi_trains_and_ksivi_says_what_it_needs():
    target = ksivi.from_callback(lambda x: (-0.5 * x @ x, -x), 2)
    family = ksivi.SemiImplicit.mlp(KEY, dim=2, mixing_dim=2, hidden=(4,))
    ksivi.train(KEY, target, family, ksivi.SIVI(5, 5), num_steps=3, progress=False)
    with pytest.raises(ValueError, match="hessian_product must be given"):
        ksivi.train(KEY, target, family, ksivi.KSIVI(num_samples=5), num_steps=3, progress=False)


@pytest.mark.parametrize("make_target", [by_callback, by_torch])
def test_the_same_function_is_not_compiled_again(make_target):
    traced = []

    @jax.jit
    def score(target, x):
        traced.append(1)
        return target.score(x)

    for _ in range(2):
        score(make_target(), jnp.ones(3))
    assert len(traced) == 1


def test_a_value_and_its_gradient_are_one_call():
    calls = []

    def counted(x):
        calls.append(1)
        return value_and_gradient(x)

    target = ksivi.from_callback(counted, 3)
    calls.clear()
    jax.block_until_ready(jax.jit(jax.value_and_grad(target.log_density))(jnp.ones(3)))
    assert len(calls) == 1


def test_where_a_host_function_rejects_there_is_no_mass():
    """As a Stan model does, for example if a Cholesky factorisation fails."""

    def half(x):
        if x[0] > 1:
            raise RuntimeError("rejected")
        return -0.5 * x @ x, -x

    target = ksivi.from_callback(half, 2)
    values, scores = jax.vmap(target.log_density_and_score)(jnp.array([[0.0, 1.0], [2.0, 0.0]]))
    np.testing.assert_array_equal(values, [-0.5, -np.inf])
    assert np.isfinite(scores[0]).all()
    with pytest.raises(
        ValueError, match="value_and_gradient failed at the test point: RuntimeError: rejected"
    ):
        ksivi.from_callback(half, 2, test_point=jnp.array([2.0, 0.0]))


def test_errors_of_a_host_function_are_one_line():
    with pytest.raises(
        ValueError,
        match=r"value_and_gradient must return arrays of shape \(\) and \(3,\) .* got \(\) and \(2,\)",
    ):
        ksivi.from_callback(lambda x: (0.0, x[:2]), 3)
    with pytest.raises(
        ValueError,
        match=r"must return arrays of shape \(1,\) and \(1, 3\) for points as the rows .* got \(\) and",
    ):
        ksivi.from_callback(lambda x: (-0.5 * np.sum(x**2), -x), 3, batched=True)
    with pytest.raises(ValueError, match=r"hessian_product must return .* \(3,\) .* got \(1,\)"):
        ksivi.from_callback(value_and_gradient, 3, hessian_product=lambda x, v: v[:1])
    with pytest.raises(ValueError, match="test_point must be 3 floating numbers"):
        ksivi.from_callback(value_and_gradient, 3, test_point=1.0)
    with pytest.raises(ValueError, match="value_and_gradient must be"):
        ksivi.from_callback(3.0, 3)
    with pytest.raises(
        ValueError, match="value_and_gradient failed at the test point: ZeroDivisionError"
    ):
        ksivi.from_callback(lambda x: (1 / 0, x), 3)
    with pytest.raises(ValueError, match=r"must be finite at the test point.* test_point="):
        ksivi.from_callback(lambda x: (np.nan, x), 3)


def test_a_tensor_of_another_shape_is_refused():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(
        ValueError, match=r"log_density must return shape \(1,\) for 1 points, got shape \(1, 3\)"
    ):
        ksivi.from_torch(lambda x: -(x**2), 3, batched=True)
    with pytest.raises(ValueError, match=r"^log_density must return a scalar .* got shape \(3,\)"):
        ksivi.from_torch(lambda x: -(x**2), 3)
    with pytest.raises(
        ValueError, match=r"^log_density must be finite at the test point, got -inf"
    ):
        ksivi.from_torch(lambda x: x.log().sum(), 3)
    with pytest.raises(ValueError, match="device must be a device that PyTorch has here, got 'no'"):
        ksivi.from_torch(lambda x: -(x**2).sum(), 3, device="no")


def test_a_linear_log_density_in_torch_has_no_curvature():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    target = ksivi.from_torch(lambda x: -x.sum(), 2)
    np.testing.assert_array_equal(jax.jacrev(target.score)(jnp.ones(2)), np.zeros((2, 2)))


def test_values_beyond_single_precision_are_infinite_without_a_warning():
    target = ksivi.from_callback(lambda x: (-1e200 * np.sum(x**2), -2e200 * x), 2)
    assert target.log_density(jnp.ones(2)) == -jnp.inf
