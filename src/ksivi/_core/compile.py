"""Compiled programs. Only the most recent ones are kept."""

import dataclasses
import functools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .programs import program_cache
from .sharding import num_threads, on_every_device, platform_of, replicate, tracing_for

Function = TypeVar("Function", bound=Callable)

_KEPT = 8
"""Number of programs kept per function. Each has its own static arguments and shapes."""
_LESS_OPTIMISED = {"xla_backend_optimization_level": 1}
_SEQUENTIAL = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""Runs operations one after another. By default XLA runs independent operations in parallel, and
then two batches of matrix decompositions deadlock: each waits for threads that the other holds."""
_PARALLEL_SUMS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}
"""YNNPACK computes sums, not matrix products: at 256 × 128 × 128 it uses one core, Eigen two."""

_CUDA_GRAPHS = {
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,CONDITIONAL,WHILE,"
    "DYNAMIC_SLICE_FUSION",
}
"""Records loops as one CUDA graph, in which a kernel launch waits only for its inputs. A step is
dozens of launches of one or two microseconds, and half of them can run in parallel. Results are
equal bit for bit."""

_UNTUNED = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
"""Takes the first kernel for a matrix product. To try many takes several seconds per program."""

_OPTIONS: dict[tuple[str, bool], tuple[dict[str, Any], dict[str, Any]]] = {
    ("cpu", False): (_SEQUENTIAL, _PARALLEL_SUMS),
    ("cpu", True): (_SEQUENTIAL | _LESS_OPTIMISED, {}),
    ("gpu", False): ({}, _CUDA_GRAPHS),
    ("gpu", True): ({}, _UNTUNED),
}
"""By platform, and whether to compile fast: options, and those that XLA may not know."""

_BLOCKING = re.compile(r"\b(custom-call|fft|convolution)\(")
"""Operations that may hold one of XLA's threads while they wait for another thread, such as matrix
decompositions and calls to Python. Two such programs in parallel can deadlock."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["arrays"], meta_fields=["rest"])
@dataclasses.dataclass(frozen=True)
class _Result:
    """The result of a program: arrays, and the rest of the tree, known at compile time.

    It is no Equinox module, because making one takes longer than a small program runs.
    """

    arrays: list[Array | None]
    rest: Any

    def tree(self) -> Any:
        return _join(self.rest[0], self.arrays, self.rest[1])


class _Program:
    """A jitted function, and its executable for calls from several threads."""

    def __init__(
        self, run: Callable[[list], _Result], options: dict[str, Any] | None, nested: bool
    ):
        self.jitted = jax.jit(run, compiler_options=options)
        self.is_compiled = nested  # with the program around it
        self.blocks: dict[Any, bool] = {}

    def __call__(self, arrays: list[Array | None]) -> _Result:
        """Runs the program. What the first call compiles is kept on disk."""
        if self.is_compiled:
            return self.jitted(arrays)
        with program_cache():
            result = self.jitted(arrays)
        self.is_compiled = True
        return result

    def thread_safe_executable(
        self, arrays: list[Array | None]
    ) -> Callable[[list], _Result] | None:
        """The compiled executable, or None if two calls in parallel could deadlock.

        An executable does not depend on the JAX settings of the thread that calls it. JAX caches
        it, so nothing is compiled twice.
        """
        with program_cache():
            compiled = self.jitted.lower(arrays).compile()
        executable = compiled.runtime_executable()
        if executable not in self.blocks:
            code = compiled.as_text()
            self.blocks[executable] = not code or bool(_BLOCKING.search(code))
        return None if self.blocks[executable] else compiled


def jit(function: Function, fast_compile: bool = False) -> Function:
    """`eqx.filter_jit` with a bounded cache: it keeps only the last eight programs of a function.

    Arrays are traced, and everything else is static. JAX itself keeps every program until the
    process ends. On a CPU each program takes dozens of memory maps, and Linux allows 65,530 per
    process. After a few dozen fits to different targets, the next compilation would crash.
    """

    @functools.lru_cache(maxsize=_KEPT)
    def program(
        tree: Any, static: tuple[Any, ...], kinds: Any, options: tuple, nested: bool, platform: str
    ) -> _Program:
        def run(arrays: list[Array | None]) -> _Result:
            args, kwargs = _join(tree, arrays, static)
            with tracing_for(platform):
                results, *rest = _split(function(*args, **kwargs))
            # Replicated over the devices of a mesh, so that every process can read the results.
            return _Result(results if nested else jax.tree.map(replicate, results), tuple(rest))

        run.__name__ = run.__qualname__ = function.__name__
        return _Program(run, dict(options) or None, nested)

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
        return found(arrays).tree()

    call.program_for = program_for  # type: ignore[attr-defined]
    call.programs = lambda: program.cache_info().currsize  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def on_cores(function: Callable) -> Callable[..., list | None]:
    """Calls function(i, ...) for i = 0 … count − 1 in parallel on a CPU, with one thread per core.

    XLA cannot divide a training step well, because the step is too small. Ten runs of KSIVI on 16
    cores take a sixth of the time that one program for all runs takes. The result is None if calls
    in parallel could deadlock.
    """
    compiled = jit(function)

    def call(count: int, *args: Any) -> list | None:
        indices = [jnp.asarray(i, jnp.int32) for i in range(count)]
        program, arrays = compiled.program_for((indices[0], *args), {})  # type: ignore[attr-defined]
        executable = program.thread_safe_executable(arrays)
        if executable is None:
            return None
        # The index is the first leaf of the arguments.
        run = lambda index: jax.block_until_ready(executable([index, *arrays[1:]])).tree()  # noqa: E731
        with ThreadPoolExecutor(min(count, num_threads())) as threads:
            return list(threads.map(run, indices))

    return call


def one_shot(function: Function) -> Function:
    """`jit` for programs that run only for seconds: it compiles in half the time, or less on a GPU.

    On a CPU the compiler optimises less. Matrix products do not suffer, because libraries compute
    them. Large elementwise loops are about a quarter slower. On a GPU matrix products are not tuned.
    """
    return jit(function, fast_compile=True)


def _is_nested(arrays: list[Array | None]) -> bool:
    """Whether another program is being traced. Only the outer program may have compiler options."""
    # Inside a trace, constants are tracers too.
    return any(isinstance(array, jax.core.Tracer) for array in (*arrays, jnp.zeros(())))


@functools.cache
def _options(fast_compile: bool, platform: str) -> tuple[tuple[str, Any], ...]:
    where = "gpu" if platform == "cuda" else platform
    sure, probed = _OPTIONS.get((where, fast_compile), ({}, {}))
    return tuple((sure | (probed if _is_known(probed, platform) else {})).items())


def _is_known(options: dict[str, Any], platform: str) -> bool:
    """Whether this version of XLA has these options. Experimental ones come and go."""
    try:
        with jax.default_device(jax.local_devices(backend=platform)[0]):
            jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except (RuntimeError, ValueError):
        return False
    return True


def _split(tree: PyTree) -> tuple[list[Array | None], Any, tuple[Any, ...]]:
    """The arrays of a tree, its structure, and its other leaves."""
    leaves, structure = jax.tree.flatten(tree)
    is_array = [eqx.is_array(leaf) for leaf in leaves]
    arrays = [leaf if yes else None for leaf, yes in zip(leaves, is_array, strict=True)]
    return (
        arrays,
        structure,
        tuple(None if yes else leaf for leaf, yes in zip(leaves, is_array, strict=True)),
    )


def _kinds(arrays: list[Array | None], static: tuple[Any, ...]) -> tuple:
    """Shapes and dtypes of the arrays, and types of the static values, because 1 == 1.0 == True."""
    shapes = tuple(
        (a.shape, a.dtype, getattr(a, "weak_type", False)) for a in arrays if a is not None
    )
    return shapes, tuple(type(value) for value in static)


def _join(structure: Any, arrays: list[Array | None], static: tuple[Any, ...]) -> PyTree:
    leaves = [rest if array is None else array for array, rest in zip(arrays, static, strict=True)]
    return jax.tree.unflatten(structure, leaves)
