"""Compiled programs, of which only the last few are kept."""

import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .sharding import num_threads, on_every_device, platform_of, tracing_for, whole

Function = TypeVar("Function", bound=Callable)

_KEPT = 8
"""Programs of one function, each for other static arguments or shapes."""
_LITTLE = {"xla_backend_optimization_level": 1}
_IN_ORDER = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""Operations in an order that saves memory, in practice one after another. By default XLA runs those that do not depend
on each other at once, and two batches of matrix decompositions then wait for good for threads which the other holds."""
_ON_ALL_CORES = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}
"""Sums by YNNPACK, but not matrix products: at 256 × 128 × 128 it uses one core, and Eigen uses two."""

_IN_GRAPHS = {
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
}
"""Loops recorded as one CUDA graph, in which launches wait for what they read alone: a step is dozens of launches of a
microsecond or two, half of which could run beside others. The results are the same to the bit."""

_WAITS = re.compile(r"\b(custom-call|fft|convolution)\(")
"""Operations that may hold one of XLA's threads while they wait for another, such as matrix decompositions and calls of
Python. Programs that do so at once wait for good when all threads are held."""


class _Result(eqx.Module):
    """What a program returns: arrays, and the rest of the tree, which was known when it was compiled."""

    arrays: list[Array | None]
    rest: Any = eqx.field(static=True)

    def tree(self) -> Any:
        return _join(self.rest[0], self.arrays, self.rest[1])


class _Program:
    """`jitted`, and what of it several threads may call."""

    def __init__(self, run: Callable[[list], _Result], options: dict[str, Any] | None):
        self.jitted = jax.jit(run, compiler_options=options)
        self.waits: dict[Any, bool] = {}

    def beside_others(self, arrays: list[Array | None]) -> Callable[[list], _Result] | None:
        """What was compiled, which does not ask the thread that calls it for JAX's settings; None if it must run alone.

        JAX remembers it: what these arrays and settings were seen with before is not compiled again.
        """
        compiled = self.jitted.lower(arrays).compile()
        executable = compiled.runtime_executable()
        if executable not in self.waits:
            self.waits[executable] = bool(_WAITS.search(compiled.as_text() or ""))
        return None if self.waits[executable] else compiled


def jit(function: Function, fast_compile: bool = False) -> Function:
    """`eqx.filter_jit` that forgets: arrays are traced, all else is static, and the eight last programs are kept.

    JAX keeps every program for as long as the process lives, those for a target that is gone among them. On a CPU
    each takes dozens of memory maps, of which Linux grants a process 65,530: a few dozen fits to different targets,
    and the next compilation is a segmentation fault.
    """

    @functools.lru_cache(maxsize=_KEPT)
    def program(
        tree: Any, static: tuple[Any, ...], kinds: Any, options: tuple, nested: bool, platform: str
    ) -> _Program:
        def run(arrays: list[Array | None]) -> _Result:
            args, kwargs = _join(tree, arrays, static)
            with tracing_for(platform):
                results, *rest = _split(function(*args, **kwargs))
            # Whatever the devices of a mesh share, what comes out is on all of them: every process can read it.
            return _Result(results if nested else jax.tree.map(whole, results), tuple(rest))

        run.__name__ = run.__qualname__ = function.__name__
        return _Program(run, dict(options) or None)

    def program_for(args: tuple, kwargs: dict) -> tuple[_Program, list[Array | None]]:
        arrays, tree, static = _split((args, kwargs))
        arrays = jax.tree.map(on_every_device, arrays)
        nested = _is_nested(arrays)
        where = platform_of(arrays)
        options = () if nested else _options(fast_compile, where)
        return program(tree, static, _kinds(arrays, static), options, nested, where), arrays

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found, arrays = program_for(args, kwargs)
        return found.jitted(arrays).tree()

    call.program_for = program_for  # type: ignore[attr-defined]
    call.programs = lambda: program.cache_info().currsize  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def on_cores(function: Callable) -> Callable[..., list | None]:
    """function(i, ...) at i = 0 … count − 1, by one program that a thread a core calls; for a CPU.

    A step of training is too small to be divided: ten runs of KSIVI on 16 cores take a sixth of the time of one program
    for all of them. The result is None where the program must not run beside another.
    """
    compiled = jit(function)

    def call(count: int, *args: Any) -> list | None:
        indices = [jnp.asarray(i, jnp.int32) for i in range(count)]
        program, arrays = compiled.program_for((indices[0], *args), {})  # type: ignore[attr-defined]
        executable = program.beside_others(arrays)
        if executable is None:
            return None
        # The index is the first leaf of all arguments.
        run = lambda index: jax.block_until_ready(executable([index, *arrays[1:]])).tree()  # noqa: E731
        with ThreadPoolExecutor(min(count, num_threads())) as threads:
            return list(threads.map(run, indices))

    return call


def one_shot(function: Function) -> Function:
    """`jit` for what runs for seconds: on a CPU, compiled with little optimisation, in half the time.

    Matrix products are libraries' in any case; what suffers, by a quarter or so, are large loops over elements.
    """
    return jit(function, fast_compile=True)


def _is_nested(arrays: list[Array | None]) -> bool:
    """Whether another program is being traced, which alone may have options; its constants are tracers as well."""
    return any(isinstance(array, jax.core.Tracer) for array in (*arrays, jnp.zeros(())))


@functools.cache
def _options(fast_compile: bool, platform: str) -> tuple[tuple[str, Any], ...]:
    if fast_compile and platform == "cpu":
        return tuple((_IN_ORDER | _LITTLE).items())
    sure, probed = {"cpu": (_IN_ORDER, _ON_ALL_CORES), "gpu": ({}, _IN_GRAPHS), "cuda": ({}, _IN_GRAPHS)}.get(
        platform, ({}, {})
    )
    return tuple((sure | (probed if _is_known(probed, platform) else {})).items())


def _is_known(options: dict[str, Any], platform: str) -> bool:
    """Whether this version of XLA has such options: those that are experimental come and go."""
    try:
        with jax.default_device(jax.local_devices(backend=platform)[0]):
            jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except (RuntimeError, ValueError):
        return False
    return True


def _split(tree: PyTree) -> tuple[list[Array | None], Any, tuple[Any, ...]]:
    """The arrays of a tree, its structure, and what else it holds."""
    leaves, structure = jax.tree.flatten(tree)
    is_array = [eqx.is_array(leaf) for leaf in leaves]
    arrays = [leaf if yes else None for leaf, yes in zip(leaves, is_array, strict=True)]
    return arrays, structure, tuple(None if yes else leaf for leaf, yes in zip(leaves, is_array, strict=True))


def _kinds(arrays: list[Array | None], static: tuple[Any, ...]) -> tuple:
    """What tells programs apart besides values: shapes and dtypes of arrays, and types, for 1 equals 1.0 and True."""
    shapes = tuple((a.shape, a.dtype, getattr(a, "weak_type", False)) for a in arrays if a is not None)
    return shapes, tuple(type(value) for value in static)


def _join(structure: Any, arrays: list[Array | None], static: tuple[Any, ...]) -> PyTree:
    leaves = [rest if array is None else array for array, rest in zip(arrays, static, strict=True)]
    return jax.tree.unflatten(structure, leaves)
