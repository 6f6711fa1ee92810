"""Where the tasks of a command run: `--executor`, `--workers`, `--scheduler`."""

import logging
import os
from typing import Annotated

import typer

from .._core.checks import as_choice, as_count
from ..executors import Dask, Executor, Local, environment
from ._shared import notes

ExecutorName = Annotated[
    str, typer.Option("--executor", help="local: one after another; dask: on several processes or machines at once.")
]
Workers = Annotated[int | None, typer.Option(help="Processes that dask starts on this machine; 2 unless given.")]
Scheduler = Annotated[
    str | None, typer.Option(help="tcp://HOST:PORT of a running Dask scheduler, whose workers dask is to use.")
]

_DEFAULT_WORKERS = 2
_PROTOCOLS = ("tcp", "tls", "ucx", "ws", "wss")


def chosen_executor(name: str, workers: int | None, scheduler: str | None) -> Executor:
    """The executor that the options describe. To be called before JAX starts."""
    as_choice(name, "--executor", ("local", "dask"))
    if name == "local":
        for option, value in (("--workers", workers), ("--scheduler", scheduler)):
            if value is not None:
                raise ValueError(f"{option} is for --executor dask, got {value} for --executor local")
        return Local()
    if workers is not None and scheduler is not None:
        raise ValueError(f"--workers are started where there is no --scheduler, got {workers} and {scheduler}")
    count = as_count(_DEFAULT_WORKERS if workers is None else workers, "--workers")
    address = None if scheduler is None else _address(scheduler)
    executor = Dask(count, address, lambda sentence: notes.print(sentence, highlight=False, markup=False))
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # its errors are raised too, and told in a line
    os.environ.update(environment())  # this process computes too, and shares the device with its workers
    return executor


def _address(scheduler: str) -> str:
    protocol, found, place = scheduler.partition("://")
    host, _, port = place.rpartition(":")
    if not found or protocol not in _PROTOCOLS or not host or not port.isdigit():
        raise ValueError(f"--scheduler must be an address like tcp://HOST:PORT, got {scheduler!r}")
    return scheduler
