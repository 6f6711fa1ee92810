"""The precision of matrix products, as lowered for a GPU and for a CPU, whichever there is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ksivi import _numerics


@pytest.fixture
def tensor_cores(monkeypatch):
    monkeypatch.setattr(_numerics, "has_tensor_cores", lambda: True)


def lowered(platform: str, dtype: str = "float32") -> str:
    a, b = jnp.ones((3, 4), dtype), jnp.ones((4, 5), dtype)
    traced = jax.jit(lambda a, b: _numerics.product(a, b)).trace(a, b)
    return traced.lower(lowering_platforms=(platform,)).as_text()


def test_tensor_cores_multiply_in_three_parts(tensor_cores):
    assert "num_primitive_operations = 3" in lowered("cuda")


def test_a_cpu_beside_a_gpu_multiplies_in_full(tensor_cores):
    """Of one trace, since where it will run is not known then."""
    assert "algorithm" not in lowered("cpu")
    assert "HIGHEST, HIGHEST" in lowered("cpu")
    a, b = np.random.default_rng(0).normal(size=(2, 40, 40)).astype(np.float32)
    np.testing.assert_allclose(_numerics.product(jnp.asarray(a), jnp.asarray(b)), a @ b, rtol=1e-4, atol=1e-5)


def test_without_tensor_cores_products_are_full(monkeypatch):
    monkeypatch.setattr(_numerics, "has_tensor_cores", lambda: False)
    assert "HIGHEST, HIGHEST" in lowered("cuda")
    assert "algorithm" not in lowered("cuda")


def test_the_users_precision_stands(tensor_cores):
    with jax.default_matmul_precision("tensorfloat32"):
        text = lowered("cuda")
    assert "algorithm" not in text
    assert "HIGHEST" not in text


def test_double_precision_stays_double(tensor_cores):
    with jax.enable_x64(True):
        text = lowered("cuda", "float64")
    assert "f64" in text
    assert "algorithm" not in text


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU")
def test_a_cpu_has_no_tensor_cores():
    assert not _numerics.has_tensor_cores()
