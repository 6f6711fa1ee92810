"""The precision of matrix products, as lowered for a GPU and for a CPU, on any machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ksivi._core import numerics
from ksivi.families import MLP

IN_THREE, IN_FULL = "num_primitive_operations = 3", "HIGHEST, HIGHEST"


@pytest.fixture
def ampere(monkeypatch):
    monkeypatch.setattr(numerics, "has_ampere", lambda: True)
    jax.clear_caches()


def products(platform: str, dtype: str = "float32") -> list[str]:
    """Every matrix product of a network and its gradient, lowered for a batch."""
    network = jax.tree.map(lambda a: a.astype(dtype), MLP(jax.random.key(0), (4, 8, 5)))
    loss = lambda network, z: jnp.sum(jax.vmap(network)(z) ** 2)  # noqa: E731
    traced = jax.jit(jax.value_and_grad(loss)).trace(network, jnp.ones((3, 4), dtype))
    lines = traced.lower(lowering_platforms=(platform,)).as_text().splitlines()
    found = [line for line in lines if "dot_general" in line]
    assert len(found) == 5  # z has no gradient
    return found


def test_tensor_cores_multiply_in_three_parts(ampere):
    assert all(IN_THREE in line for line in products("cuda"))


def test_a_cpu_beside_a_gpu_multiplies_in_full(ampere):
    assert all(IN_FULL in line and "algorithm" not in line for line in products("cpu"))
    a, b = np.random.default_rng(0).normal(size=(2, 40, 40)).astype(np.float32)
    cpu = jax.devices("cpu")[0]
    found = numerics.product(jax.device_put(a, cpu), jax.device_put(b, cpu))
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)


def test_older_gpus_multiply_in_full(monkeypatch):
    monkeypatch.setattr(numerics, "has_ampere", lambda: False)
    assert all(IN_FULL in line and "algorithm" not in line for line in products("cuda"))


def test_the_users_precision_stands(ampere):
    with jax.default_matmul_precision("tensorfloat32"):
        found = products("cuda")
    assert not any("algorithm" in line or "HIGHEST" in line for line in found)


def test_double_precision_stays_double(ampere):
    with jax.enable_x64(True):
        found = products("cuda", "float64")
    assert all("f64" in line and "algorithm" not in line for line in found)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU")
def test_a_cpu_is_no_gpu():
    assert not numerics.has_ampere()
