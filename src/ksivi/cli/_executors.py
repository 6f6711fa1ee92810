"""The options `--executor`, `--workers` and `--scheduler`: where the tasks of a command run."""

import logging
import os
from typing import Annotated

import typer

from .._core.checks import as_choice, as_count
from ..executors import Dask, Executor, Local, environment
from ._shared import notes

ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor", help="local: one after another. dask: in parallel, on processes or machines."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Number of processes that dask starts on this machine. Default: 2."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(help="Address tcp://HOST:PORT of a running Dask scheduler to use instead."),
]

_DEFAULT_WORKERS = 2
_PROTOCOLS = ("tcp", "tls", "ucx", "ws", "wss")


def make_executor(name: str, workers: int | None, scheduler: str | None) -> Executor:
    """The executor that the options describe. Call it before JAX starts."""
    as_choice(name, "--executor", ("local", "dask"))
    if name == "local":
        for option, value in (("--workers", workers), ("--scheduler", scheduler)):
            if value is not None:
                raise ValueError(
                    f"{option} needs --executor dask, got {value} with --executor local"
                )
        return Local()
    if workers is not None and scheduler is not None:
        raise ValueError(
            f"--workers and --scheduler exclude each other, got {workers} and {scheduler}"
        )
    count = as_count(_DEFAULT_WORKERS if workers is None else workers, "--workers")
    address = None if scheduler is None else _as_address(scheduler)
    executor = Dask(
        count, address, lambda sentence: notes.print(sentence, highlight=False, markup=False)
    )
    # Its errors are also raised, and the command line prints those in one line.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    os.environ.update(
        environment()
    )  # this process computes too, and shares the device with its workers
    return executor


def _as_address(scheduler: str) -> str:
    protocol, found, place = scheduler.partition("://")
    host, _, port = place.rpartition(":")
    if not found or protocol not in _PROTOCOLS or not host or not port.isdigit():
        raise ValueError(f"--scheduler must be an address like tcp://HOST:PORT, got {scheduler!r}")
    return scheduler
