"""Several devices give the losses of one: virtual ones of this processor, in one process and in two."""

import functools
import json
import os
import socket
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
import on_devices
from ksivi._core import sharding
from ksivi._core.compile import jit

TOLERANCE = {"float64": 1e-8, "float32": 1e-5}
CASES = [
    pytest.param(name, precision, marks=() if name == "vanilla" else pytest.mark.slow)
    for name in on_devices.CASES
    for precision in on_devices.STEPS
]


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_eight_devices_give_the_losses_of_one(name, precision):
    found = on_eight(f"{name}@{precision}")[f"{name} {precision}"]
    np.testing.assert_allclose(found["mesh"], found["one"], rtol=TOLERANCE[precision])


@pytest.mark.slow
@pytest.mark.parametrize("precision", on_devices.STEPS)
@pytest.mark.parametrize("name", on_devices.CASES)
def test_two_processes_give_the_losses_of_one_device(name, precision):
    first, second = (found[f"{name} {precision}"] for found in on_two_processes(name))
    assert first == second
    one = on_eight(f"{name}@{precision}")[f"{name} {precision}"]["one"]
    np.testing.assert_allclose(first["mesh"], one, rtol=TOLERANCE[precision])


@pytest.mark.slow
def test_fit_on_two_devices_and_on_two_processes_gives_the_posterior_of_one():
    found = finished([start("fit", 2)])[0]["fit float32"]
    posterior_sd = 0.11
    np.testing.assert_allclose(found["mesh"], found["one"], atol=0.1 * posterior_sd)
    first, second = (found["fit float32"]["mesh"] for found in on_two_processes("fit"))
    assert first == second
    np.testing.assert_allclose(first, found["one"], atol=0.1 * posterior_sd)


@pytest.mark.parametrize("form", ["memory", "host"])
def test_passes_on_eight_devices_give_the_sums_of_one_and_exchange_sums_alone(form):
    found = on_eight("passes-memory,passes-host")[f"passes-{form} float32"]
    mesh, one = found["mesh"], found["one"]
    np.testing.assert_allclose(mesh["sums"], one["sums"], rtol=1e-5, atol=0.02)
    np.testing.assert_allclose(mesh["hessians"], one["hessians"], rtol=0.03)  # not of the same rows
    np.testing.assert_allclose(mesh["sizes"], one["sizes"], rtol=1e-3)
    num_points, dim = 5, 3
    assert mesh["most exchanged"] == num_points * (1 + dim)


MANY = ["fit-memory", "fit-host", "fit-few"]
ON_DEVICES = [
    pytest.param(name, count, marks=() if (name, count) == ("fit-host", 8) else pytest.mark.slow)
    for name in MANY
    for count in (2, 8)
]


def assert_same_posterior(found, one):
    """The same number of rows, means within a twentieth of a standard deviation, widths within 5%."""
    assert found[-1] == one[-1]
    np.testing.assert_allclose(np.subtract(found, one)[:3] / one[3:6], 0, atol=0.05)
    np.testing.assert_allclose(found[3:6], one[3:6], rtol=0.05)


@pytest.mark.parametrize(("name", "num_devices"), ON_DEVICES)
def test_fit_divides_many_rows(name, num_devices):
    found = finished([start(name, num_devices)])[0][f"{name} float32"]
    assert (found["one"][-1] > 0) == (name != "fit-few")
    assert_same_posterior(found["mesh"], found["one"])


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_fit_divides_many_rows_over_two_processes(name):
    first, second = (found[f"{name} float32"]["mesh"] for found in on_two_processes(name))
    assert first == second
    assert_same_posterior(first, finished([start(name, 2)])[0][f"{name} float32"]["one"])


def mesh_of(num_devices, platform):
    devices = [types.SimpleNamespace(platform=platform)] * num_devices
    return types.SimpleNamespace(devices=np.array(devices), local_devices=devices)


def test_fit_refuses_as_many_virtual_devices_as_threads(monkeypatch):
    """They would deadlock."""
    monkeypatch.setenv("NPROC", "2")
    mesh = mesh_of(2, "cpu")
    with pytest.raises(
        ValueError,
        match="mesh must have fewer virtual devices than XLA has threads, got 2 devices and",
    ):
        sharding.require_threads(mesh)
    monkeypatch.setenv("NPROC", "4")
    assert sharding.require_threads(mesh) is mesh


def test_a_mesh_of_cpus_is_guarded_beside_a_gpu_too(monkeypatch):
    """The platform is the mesh's. That of the process says nothing about it."""
    monkeypatch.setenv("NPROC", "2")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(
        ValueError, match="mesh must have fewer virtual devices than XLA has threads"
    ):
        sharding.require_threads(mesh_of(4, "cpu"))
    assert sharding.require_threads(mesh_of(4, "gpu"))


def test_a_program_is_for_the_platform_of_its_arrays(monkeypatch):
    """Arrays that were put on a CPU make a program for a CPU, whatever the default device is."""
    seen = []
    program = jit(lambda x: seen.append(sharding.platform()) or 2 * x)
    here = jax.device_put(jnp.ones(3), jax.devices("cpu")[0])
    with sharding.tracing_for("gpu"):  # stands for a process whose default is a GPU
        assert sharding.platform() == "gpu"
        assert sharding.platform_of([here]) == "cpu"
        program(here)
    assert seen == ["cpu"]


@functools.cache
def on_eight(case):
    return finished([start(case, 8)])[0]


@functools.cache
def on_two_processes(name):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return finished([start(name, 2, process, port) for process in (0, 1)])


def start(*arguments):
    script = Path(__file__).parent / "on_devices.py"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "16"}
    return subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(processes):
    outputs = [process.communicate(timeout=600) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors.decode()
    return [json.loads(printed.decode().splitlines()[-1]) for printed, _ in outputs]


def small_run(mesh, target=None):
    target = target or ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=2, mixing_dim=3, hidden=(8,))
    return ksivi.train(
        jax.random.key(1), target, family, ksivi.KSIVI(num_samples=16), num_steps=2, mesh=mesh
    )


def test_a_mesh_with_other_axes_is_refused():
    with pytest.raises(
        ValueError, match="mesh must have axes named seeds, samples or data, got 'batch'"
    ):
        small_run(jax.make_mesh((1,), ("batch",)))


def test_what_is_no_mesh_is_refused():
    with pytest.raises(ValueError, match=r"mesh must be a jax.sharding.Mesh.*got 2"):
        small_run(2)


def test_a_target_without_rows_cannot_be_divided_by_them():
    with pytest.raises(
        ValueError, match=r"a mesh with an axis named data needs a target with rows"
    ):
        small_run(jax.make_mesh((1,), ("data",)))


def test_rows_on_the_host_cannot_be_divided():
    rows = ksivi.Rows(np.zeros((64, 3), np.float32))
    target = ksivi.Target.from_data(
        on_devices.log_prior, lambda x, batch: jnp.sum(batch) * x[0], rows, 2, batch_size=8
    )
    with pytest.raises(ValueError, match="a mesh with an axis named data needs all rows in memory"):
        small_run(jax.make_mesh((1,), ("data",)), target)
