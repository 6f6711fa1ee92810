"""Compiled programs: what is traced, what is kept, what is forgotten."""

import gc
import os
import subprocess
import sys
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from ksivi._core.compile import _KEPT, jit, on_cores, one_shot


class _Scaled(eqx.Module):
    function: object = eqx.field(static=True)
    scale: jax.Array
    name: str

    def __call__(self, x):
        return self.scale * self.function(x)


@pytest.mark.parametrize("compile", [jit, one_shot])
def test_arrays_are_traced_and_all_else_is_static(compile):
    traced = []

    @compile
    def apply(module, x, *, power, nothing=None):
        traced.append(power)
        return _Scaled(module.function, module(x) ** power, module.name), nothing

    for scale in (1.0, 2.0):
        result, nothing = apply(_Scaled(jnp.sin, jnp.asarray(scale), "a"), jnp.ones(3), power=2)
        assert jnp.allclose(result.scale, (scale * jnp.sin(1.0)) ** 2)
        assert (result.function, result.name, nothing) == (jnp.sin, "a", None)
    assert traced == [2]
    apply(_Scaled(jnp.sin, jnp.ones(()), "a"), jnp.ones(3), power=3)
    apply(_Scaled(jnp.sin, jnp.ones(()), "a"), jnp.ones(4), power=3)
    assert traced == [2, 3, 3]


def test_both_precisions_have_their_own_program(x64):
    double = jit(lambda x: x + jnp.zeros(()))
    assert double(jnp.ones(2)).dtype == jnp.float64
    with jax.enable_x64(False):
        assert double(jnp.ones(2)).dtype == jnp.float32


def test_old_programs_are_forgotten():
    """What they closed over is freed with them; without that, dozens of fits end in a segmentation fault."""
    apply = jit(lambda function, x: function(x))

    def add(i):
        function = lambda x: x + i  # noqa: E731
        assert apply(function, jnp.zeros(())) == i
        return weakref.ref(function)

    functions = [add(i) for i in range(2 * _KEPT)]
    gc.collect()
    alive = [function() is not None for function in functions]
    assert alive == [False] * _KEPT + [True] * _KEPT


def test_every_shape_is_a_program():
    apply = jit(lambda x: x + 1)
    for n in range(1, 2 * _KEPT):
        assert apply(jnp.zeros(n)).shape == (n,)
    assert apply.programs() == _KEPT


def test_equal_values_of_other_types_are_other_programs():
    full = jit(lambda value: jnp.full(2, value))
    assert [full(value).dtype for value in (1, 1.0, True)] == [jnp.int32, jnp.float32, jnp.bool_]


@pytest.mark.parametrize("compile", [jit, one_shot])
def test_programs_nest_under_transformations(compile):
    square = compile(lambda x, power: x**power)
    assert jnp.allclose(
        jax.vmap(jax.grad(lambda x: square(x, 3)))(jnp.arange(3.0)), 3 * jnp.arange(3.0) ** 2
    )


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the lock is XLA's on a CPU")
def test_batches_of_matrix_decompositions_do_not_lock():
    """Compiled by `jax.jit` with its defaults this waits for good, within seconds, on two threads."""
    two_threads = {**os.environ, "NPROC": "2", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    finished = subprocess.run(
        [sys.executable, "-c", _TWO_BATCHES],
        timeout=120,
        capture_output=True,
        text=True,
        env=two_threads,
    )
    assert finished.returncode == 0, finished.stderr


_TWO_BATCHES = """
import jax, jax.numpy as jnp
from ksivi._core.compile import jit

@jit
def decompose(x, y):
    return [(jnp.linalg.cholesky(one), jnp.linalg.eigh(one)) for one in (x, y)]

x = jax.random.normal(jax.random.key(0), (2, 256, 40, 40))
x = x @ x.mT + 10 * jnp.eye(40)
for _ in range(20):
    jax.block_until_ready(decompose(*x))
"""


def test_programs_nest_under_transformations_without_traced_arguments():
    """The arguments are closed over, so that only the surroundings tell that another program is being traced."""
    double, x = jit(lambda x: 2 * x), jnp.ones(2)
    assert jnp.allclose(jax.jit(lambda y: y + double(x))(x), 3.0)
    assert jax.eval_shape(lambda: double(x)).shape == (2,)
    assert jnp.allclose(jax.lax.scan(lambda c, _: (c + double(x), None), x, None, length=2)[0], 5.0)


def _powers(i, x, exponent):
    return {"index": i, "power": x[i] ** exponent}


def test_a_function_on_cores_gives_the_result_at_every_index():
    x = jnp.arange(5.0)
    found = on_cores(_powers)(5, x, 2)
    assert [int(one["index"]) for one in found] == [0, 1, 2, 3, 4]
    assert jnp.allclose(jnp.stack([one["power"] for one in found]), x**2)


def test_threads_have_the_settings_of_whoever_starts_them():
    thirds = on_cores(lambda i, x: x[i] + jnp.asarray(1 / 3))
    assert thirds(1, jnp.arange(2))[0].dtype == jnp.float32
    with jax.enable_x64(True):
        assert thirds(1, jnp.arange(2, dtype=jnp.int32))[0].dtype == jnp.float64
    normals = lambda i, key: jax.random.normal(key, (3,))  # noqa: E731
    alone, on_each = jit(normals), on_cores(normals)
    for partitionable in (True, False):
        with jax.threefry_partitionable(partitionable):
            key = jax.random.key(0)
            assert jnp.array_equal(on_each(2, key)[1], alone(jnp.asarray(1, jnp.int32), key))


def test_nothing_is_compiled_again_on_cores():
    traced = []
    add = on_cores(lambda i, x: traced.append(i) or x + i)
    for value in range(3):
        assert [float(one) for one in add(2, jnp.full((), float(value)))] == [value, value + 1]
    assert len(traced) == 1


@pytest.mark.parametrize(
    "wait",
    [
        jnp.linalg.cholesky,
        jnp.fft.fft,
        lambda a: jax.pure_callback(lambda b: b, jax.ShapeDtypeStruct(a.shape, a.dtype), a),
    ],
)
@pytest.mark.usefixtures("compiled_afresh")
def test_what_waits_for_threads_does_not_run_on_cores(wait):
    assert on_cores(lambda i, x: wait(x[i] @ x[i].T + jnp.eye(3)))(2, jnp.ones((2, 3, 3))) is None
