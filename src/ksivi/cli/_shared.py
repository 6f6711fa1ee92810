"""Shared by all commands: exit codes, messages, and checks of options."""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from .._core.checks import as_count
from .._core.files import require_writable
from .._core.interrupts import Interrupts

BAD_INPUT, NOT_TRUSTED, NOT_SAVED, INTERRUPTED, TERMINATED = 2, 3, 4, 130, 143
"""Exit codes. 0: done. NOT_SAVED: the work was done, but its folder could not be written."""

notes = Console(stderr=True)
interrupts = Interrupts()
"""Ctrl-C during the command."""


def fail(error: Exception, code: int) -> NoReturn:
    """Prints the error in one line, and exits with the code."""
    notes.print(f"error: {error}", style="bold red", markup=False, highlight=False)
    sys.exit(code)


def say(text: str) -> None:
    """Prints a result to stdout. A full disk or a closed pipe there does not undo what was saved."""
    try:
        typer.echo(text)
        sys.stdout.flush()
    except OSError as error:
        notes.print(f"stdout could not be written: {error.strerror}", highlight=False)
        # Python writes what is left at its exit, and would fail again.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def leave(code: int) -> NoReturn:
    """Ends the process at once.

    After an interrupt, a compiled program may still run on threads of XLA. It can crash while the
    interpreter shuts down below it. So everything is flushed, and the interpreter does not shut
    down.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def require_seed(seed: int) -> None:
    as_count(seed, "--seed", minimum=0)


def folder(out: Path) -> Path:
    """The folder. It is created if it does not exist.

    Raises a `ValueError` if files cannot be written into it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        require_writable(out)
    except OSError as error:
        raise ValueError(f"--out must be a writable folder, got {out}: {error.strerror}") from error
    return out
