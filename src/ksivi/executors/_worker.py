"""What runs in a worker's process."""

import contextlib
import os
import pickle
from typing import Any

WITHOUT_PREALLOCATION = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""JAX takes most of a GPU when it starts, so that a second process would find none of it."""


def environment() -> dict[str, str]:
    """What processes that share a device need, unless the user has said otherwise."""
    return {name: os.environ.get(name, value) for name, value in WITHOUT_PREALLOCATION.items()}


def perform(packed: bytes, key: str, topic: str) -> bytes:
    """Runs a packed task on its item, and packs the parts.

    Packed, they are opened here: in the thread of the task, not in the one that answers the scheduler.
    """
    import cloudpickle
    from distributed import get_worker

    worker = get_worker()
    task, item = cloudpickle.loads(packed)
    tell = lambda message: worker.log_event(topic, [key, pickle.dumps(message)])  # noqa: E731
    with _device_of(worker.name):
        return pickle.dumps(list(task(item, tell)))


def _device_of(name: Any) -> Any:
    """The device of a worker: those of a local cluster, which are numbered, take turns."""
    import jax

    devices = jax.local_devices()
    one_of_many = isinstance(name, int) and len(devices) > 1
    return jax.default_device(devices[name % len(devices)]) if one_of_many else contextlib.nullcontext()
