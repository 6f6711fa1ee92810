"""The folder for files that are kept between processes."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$KSIVI_CACHE`, or `~/.cache/ksivi`."""
    return Path(os.environ.get("KSIVI_CACHE") or Path.home() / ".cache" / "ksivi")
