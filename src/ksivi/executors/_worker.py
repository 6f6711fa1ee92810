"""The part of the Dask executor that runs in the worker processes."""

import contextlib
import os
import pickle
from typing import Any

WITHOUT_PREALLOCATION = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""JAX takes most of a GPU's memory when it starts, and would leave none for a second process."""


def environment() -> dict[str, str]:
    """Environment variables for processes that share a device.

    Values that the user has set are kept.
    """
    return {name: os.environ.get(name, value) for name, value in WITHOUT_PREALLOCATION.items()}


def perform(packed: bytes, key: str, topic: str) -> bytes:
    """Unpickles a task and its item, runs the task, and pickles the parts of the result.

    Both happen here because this is the thread of the task. Dask would do it in the thread that
    talks to the scheduler.
    """
    import cloudpickle
    from distributed import get_worker

    worker = get_worker()
    task, item = cloudpickle.loads(packed)
    report = lambda message: worker.log_event(topic, [key, pickle.dumps(message)])  # noqa: E731
    with _device_of(worker.name):
        return pickle.dumps(list(task(item, report)))


def _device_of(name: Any) -> Any:
    """The device of a worker. The workers of a local cluster are numbered, and take turns."""
    import jax

    devices = jax.local_devices()
    one_of_many = isinstance(name, int) and len(devices) > 1
    return (
        jax.default_device(devices[name % len(devices)])
        if one_of_many
        else contextlib.nullcontext()
    )
