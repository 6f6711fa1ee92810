"""Arrays over the devices of a mesh: which axis goes where, said in the names of the mesh's axes.

Programs are written as for one device. Hints say which axes to divide, and XLA divides the work and adds what the
devices must tell each other, so that results are those of one device but for the order of sums.
"""

import contextlib
import contextvars
import os
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

Axis = Literal["seeds", "samples", "data"]

Tree = TypeVar("Tree")

_platform: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)
"""The platform of the mesh, or of the program being traced, which cannot see where its arrays are."""


def as_mesh(mesh: Any) -> Mesh | None:
    """A mesh whose axes are ours, and which XLA may divide by itself."""
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise ValueError(f'mesh must be a jax.sharding.Mesh, such as jax.make_mesh((2,), ("samples",)), got {mesh!r}')
    if unknown := [name for name in mesh.axis_names if name not in get_args(Axis)]:
        raise ValueError(f"mesh must have axes named seeds, samples or data, got {', '.join(map(repr, unknown))}")
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def require_threads(mesh: Mesh | None) -> Mesh | None:
    """Refuses (`ValueError`) as many virtual devices as XLA has threads, on behalf of programs with decompositions.

    While the devices wait for one of them, they hold a thread each, and a decomposition waits for one more, for good.
    """
    is_cpu = mesh is not None and mesh.devices.flat[0].platform == "cpu"
    devices = len(mesh.local_devices) if mesh is not None and is_cpu else 0
    threads = num_threads()
    if devices >= max(2, threads):
        raise ValueError(
            f"mesh must have fewer virtual devices than XLA has threads, got {devices} devices and {threads} threads: "
            f"set the environment variable NPROC={2 * devices} before Python starts"
        )
    return mesh


@contextlib.contextmanager
def on(mesh: Mesh | None) -> Iterator[None]:
    """Within it, programs run on the mesh."""
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
    """Whether the mesh, if any, divides this."""
    return axis in _names()


def divide(array: Array, axis: Axis) -> Array:
    """Within a program: the leading axis over those devices, where the mesh has them."""
    return _constrain(array, PartitionSpec(axis)) if has_axis(axis) else array


def whole(array: Array) -> Array:
    """Within a program: all of it on every device."""
    return _constrain(array, PartitionSpec()) if _names() else array


def on_every_device(array: Array) -> Array:
    """An argument of a program: on every device of the mesh, unless it is there already."""
    if not _names() or isinstance(array, jax.core.Tracer):
        return array
    if isinstance(array, jax.Array) and array.sharding.device_set == set(_mesh().devices.flat):
        return array
    return jax.device_put(jnp.asarray(array), NamedSharding(_mesh(), PartitionSpec()))


def num_threads() -> int:
    """Those that XLA has on a CPU: as many as cores that this process may use, unless the environment says NPROC."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(given) if (given := os.environ.get("NPROC", "")).isdigit() and int(given) else cores


def platform_of(arrays: Iterable[Any]) -> str:
    """The platform of concrete arrays; where none of them is on a device, that of `platform`."""
    for array in arrays:
        if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer) and array.committed:
            return next(iter(array.devices())).platform
    return platform()


@contextlib.contextmanager
def tracing_for(platform: str) -> Iterator[None]:
    """Within it, `platform` answers for a program whose arrays are on this platform."""
    before = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(before)


def platform() -> str:
    """The one answer to "which device": that of the program being traced, of the mesh, or of the user's default."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    named = device if isinstance(device, str) else getattr(device, "platform", None)
    return _platform.get() or named or jax.default_backend()


def divide_rows(rows: PyTree) -> PyTree:
    """Data with a row an observation, over the devices of the axis `data`."""
    mesh = _mesh()
    count, num_rows = mesh.shape["data"], len(jax.tree.leaves(rows)[0])
    if num_rows % count:
        raise ValueError(f"data must have a number of rows that the mesh's {count} devices divide, got {num_rows} rows")
    return jax.device_put(rows, NamedSharding(mesh, PartitionSpec("data")))


def on_one_device(tree: Tree) -> Tree:
    """Arrays that every device has whole, as arrays of one device; those that are divided stay so."""
    return jax.tree.map(lambda leaf: _first(leaf) if eqx.is_array(leaf) else leaf, tree)


def _first(array: Array) -> Array:
    many = isinstance(array, jax.Array) and len(array.sharding.device_set) > 1
    return array.addressable_shards[0].data if many and array.is_fully_replicated else array


def _names() -> tuple[str, ...]:
    return jax.sharding.get_abstract_mesh().axis_names


def _mesh() -> Mesh:
    return jax.sharding.get_mesh()


def _constrain(array: Array, spec: PartitionSpec) -> Array:
    return jax.lax.with_sharding_constraint(array, spec)
