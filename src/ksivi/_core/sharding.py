"""Divides arrays over the devices of a mesh, by the names of the mesh's axes.

Programs are written as for one device. Hints say which axes to divide. XLA divides the work and
adds the communication. Results are those of one device except for the order of sums.
"""

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PyTree

Axis = Literal["seeds", "samples", "data"]

Tree = TypeVar("Tree")

_platform: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)
"""Platform of the mesh or of the program being traced, which cannot see where its arrays are."""


def as_mesh(mesh: Any) -> Mesh | None:
    """The mesh with automatic axes. Raises `ValueError` if it has an axis of an unknown name."""
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise ValueError(
            f'mesh must be a jax.sharding.Mesh, such as jax.make_mesh((2,), ("samples",)), '
            f"got {mesh!r}"
        )
    if unknown := [name for name in mesh.axis_names if name not in get_args(Axis)]:
        raise ValueError(
            f"mesh must have axes named seeds, samples or data, got {', '.join(map(repr, unknown))}"
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def require_threads(mesh: Mesh | None) -> Mesh | None:
    """Raises `ValueError` if a CPU mesh has as many virtual devices as XLA has threads.

    Programs with matrix decompositions would deadlock: each waiting device holds one thread, and a
    decomposition needs one more.
    """
    is_cpu = mesh is not None and mesh.devices.flat[0].platform == "cpu"
    devices = len(mesh.local_devices) if mesh is not None and is_cpu else 0
    threads = num_threads()
    if devices >= max(2, threads):
        raise ValueError(
            f"mesh must have fewer virtual devices than XLA has threads, got {devices} devices "
            f"and {threads} threads: set the environment variable NPROC={2 * devices} "
            "before Python starts"
        )
    return mesh


@contextlib.contextmanager
def use_mesh(mesh: Mesh | None) -> Iterator[None]:
    """Runs the programs inside the block on the mesh."""
    if mesh is None:
        yield
        return
    before = _platform.set(mesh.devices.flat[0].platform)
    try:
        with jax.set_mesh(mesh):
            yield
    finally:
        _platform.reset(before)


def has_mesh() -> bool:
    return bool(_names())


def has_axis(axis: Axis) -> bool:
    """Whether the current mesh has this axis."""
    return axis in _names()


def axis_size(axis: Axis) -> int:
    """The number of devices along an axis of the current mesh; 1 if it has no such axis."""
    return int(jax.sharding.get_abstract_mesh().shape.get(axis, 1))


def shard(array: Array, axis: Axis) -> Array:
    """Inside a program: divides the leading axis over a mesh axis, if the mesh has it.

    A single entry is on all devices: if it were on one, each product with it would be sent around.
    """
    is_divided = has_axis(axis) and len(array) > 1
    return _constrain(array, PartitionSpec(axis)) if is_divided else array


def on_each_part(function: Callable[..., PyTree], *arrays: PyTree) -> PyTree:
    """Inside a program: function(*arrays) for each part of the leading axes, on a new leading axis.

    There is one part for each device along the mesh axis `data`, and its function runs there.
    """
    count = axis_size("data")
    if count == 1:
        return jax.tree.map(lambda result: result[None], function(*arrays))
    split = lambda a: shard(a.reshape(count, -1, *a.shape[1:]), "data")  # noqa: E731
    return jax.vmap(function)(*jax.tree.map(split, arrays))


def replicate(array: Array) -> Array:
    """Inside a program: puts the whole array on every device of the mesh."""
    return _constrain(array, PartitionSpec()) if _names() else array


def on_every_device(array: Array) -> Array:
    """Puts an array on every device of the mesh, unless it is there already."""
    if not (_names() and eqx.is_array(array)) or isinstance(array, jax.core.Tracer):
        return array
    if isinstance(array, jax.Array) and array.sharding.device_set == set(_mesh().devices.flat):
        return array
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        # JAX puts plain arrays on the devices of other processes, but no keys.
        words = on_every_device(jax.random.key_data(array))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(array))
    return jax.device_put(jnp.asarray(array), NamedSharding(_mesh(), PartitionSpec()))


def num_threads() -> int:
    """XLA's threads on a CPU: `$NPROC`, or else the number of cores that this process may use."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return int(given) if (given := os.environ.get("NPROC", "")).isdigit() and int(given) else cores


def platform_of(arrays: Iterable[Any]) -> str:
    """The platform of the first array that is bound to a device; otherwise `platform()`."""
    for array in arrays:
        if (
            isinstance(array, jax.Array)
            and not isinstance(array, jax.core.Tracer)
            and array.committed
        ):
            return next(iter(array.devices())).platform
    return platform()


@contextlib.contextmanager
def tracing_for(platform: str) -> Iterator[None]:
    """Inside the block, `platform()` returns the platform of the program being traced."""
    before = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(before)


def platform() -> str:
    """The platform of the program being traced, of the mesh, or of the user's default device.

    Only this module answers which device is used.
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    named = device if isinstance(device, str) else getattr(device, "platform", None)
    return _platform.get() or named or jax.default_backend()


def shard_rows(rows: PyTree) -> PyTree:
    """Divides data with one row per observation over the mesh axis `data`."""
    mesh = _mesh()
    count, num_rows = mesh.shape["data"], len(jax.tree.leaves(rows)[0])
    if num_rows % count:
        raise ValueError(
            f"data must have a multiple of {count} rows, one part per device, got {num_rows} rows"
        )
    return jax.device_put(rows, NamedSharding(mesh, PartitionSpec("data")))


@jax.jit
def own_rows(rows: PyTree, places: Int[Array, "q c"]) -> PyTree:
    """Divided rows by their indices, with q divided. Each device takes from its own part only."""

    def take(rows: PyTree, places: Int[Array, "q c"]) -> PyTree:
        begin = jax.lax.axis_index("data") * len(jax.tree.leaves(rows)[0])
        return jax.tree.map(lambda leaf: leaf[places - begin], rows)

    spec = PartitionSpec("data")
    return jax.shard_map(take, in_specs=spec, out_specs=spec)(rows, places)


def on_one_device(tree: Tree) -> Tree:
    """Turns replicated arrays into arrays of one device. Divided arrays stay as they are."""
    return jax.tree.map(lambda leaf: _first_copy(leaf) if eqx.is_array(leaf) else leaf, tree)


def _first_copy(array: Array) -> Array:
    on_many = isinstance(array, jax.Array) and len(array.sharding.device_set) > 1
    return array.addressable_shards[0].data if on_many and array.is_fully_replicated else array


def _names() -> tuple[str, ...]:
    return jax.sharding.get_abstract_mesh().axis_names


def _mesh() -> Mesh:
    return jax.sharding.get_mesh()


def _constrain(array: Array, spec: PartitionSpec) -> Array:
    return jax.lax.with_sharding_constraint(array, spec)
