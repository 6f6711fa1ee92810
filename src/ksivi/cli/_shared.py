"""What every command shares: exit codes, where notes go, and checks of options."""

import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from .._core.checks import as_count

BAD_INPUT, NOT_TRUSTED, INTERRUPTED = 2, 3, 130

notes = Console(stderr=True)


def fail(error: Exception, code: int) -> NoReturn:
    """One clear line, and the exit code."""
    notes.print(f"error: {error}", style="bold red", markup=False, highlight=False)
    sys.exit(code)


def require_seed(seed: int) -> None:
    as_count(seed, "--seed", minimum=0)


def folder(out: Path) -> Path:
    """The folder, made if it is not there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a folder that can be written, got {out}: {error.strerror}") from error
    return out
