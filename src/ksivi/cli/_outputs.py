"""Output files: written whole, and never through a link in a folder that may be from elsewhere."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside the path. It takes the path's place at the end, if nothing fails.

    A link at the path is replaced, not followed. A device or a pipe that the user names, such as
    `/dev/stdout`, is written itself.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    # The suffix stays: writers choose the format by it.
    beside = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield beside
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
