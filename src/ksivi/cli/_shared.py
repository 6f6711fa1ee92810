"""Shared by all commands: exit codes, messages, and checks of options."""

import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from .._core.checks import as_count

BAD_INPUT, NOT_TRUSTED, INTERRUPTED = 2, 3, 130

notes = Console(stderr=True)


def fail(error: Exception, code: int) -> NoReturn:
    """Prints the error in one line, and exits with the code."""
    notes.print(f"error: {error}", style="bold red", markup=False, highlight=False)
    sys.exit(code)


def require_seed(seed: int) -> None:
    as_count(seed, "--seed", minimum=0)


def folder(out: Path) -> Path:
    """The folder. It is created if it does not exist."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a writable folder, got {out}: {error.strerror}") from error
    return out
